/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#define FUNCTION(name, ...)                                                       \
	__attribute__((visibility("default"))) int name(__VA_ARGS__);             \
	__attribute__((visibility("default"), noinline)) int name(__VA_ARGS__)

/* gpu.c */
void gpu_launch(void *stream);
int gpu_query(void *event);
void gpu_wait(void);
