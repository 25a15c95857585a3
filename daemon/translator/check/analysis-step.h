/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the analysis: the effect of memory accesses and of helpers on a state. */

#include "analysis.h"

/* analysis.c */
void analysis_note(struct analysis *a, uint32_t map, unsigned use);
void analysis_escape(struct analysis *a, const struct value *value);
struct analysis_frame *analysis_frame_state(const struct analysis *a, struct analysis_frame *state,
					    uint32_t frame, uint32_t wanted);
int analysis_check_stack(struct analysis *a, size_t pc, int64_t offset, uint64_t size);
int analysis_check_record(struct analysis *a, size_t pc, const struct value *address,
			  int64_t offset, uint64_t size);
uint64_t analysis_stack_maps(const struct analysis_frame *stack);
uint64_t analysis_all_maps(const struct analysis *a, const struct analysis_frame *state,
			   uint32_t frame);
int analysis_store(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		   const struct value *base, int64_t offset, unsigned n, const struct value *value);
int analysis_load(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc,
		  const struct value *base, int64_t offset, unsigned n, bool sign,
		  struct value *value);

/* analysis-thread.c */
const char *analysis_thread_name(const struct analysis *a, const struct value *address);
int analysis_check_thread(struct analysis *a, size_t pc, const struct value *address,
			  int64_t offset, unsigned n);

/* analysis-helper.c */
int analysis_helper(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc);
int analysis_kfunc(struct analysis *a, struct analysis_frame *state, uint32_t frame, size_t pc);
