/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by what loads a module: sim-program.c, sim-initialize.c, sim-decode*.c. */

#include "sim.h"

/* Writes a message; returns result. */
CUresult sim_say(char *message, size_t size, CUresult result, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

uint32_t sim_hash(const char *name, size_t length);
uint64_t sim_align(uint64_t value, uint64_t alignment);
uint32_t sim_variable_alignment(const struct ptx_variable *variable);

/* 90 for a device of capability 9.0. */
uint32_t sim_capability(void);

/* Fills a variable's memory from its initialiser. */
CUresult sim_initialize(struct sim_program *program, const struct sim_variable *variable,
			const struct ptx_variable *source, char *message, size_t message_size);

/* Parameters and shared variables: what other functions and the program's layout depend on. Comes
 * before any sim_decode(). */
CUresult sim_decode_frame(struct sim_function *function, char *message, size_t message_size);
