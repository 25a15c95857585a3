/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Hooks: ioctls of NVIDIA's devices, functions of its driver, tracepoints and processes' beginnings
 * and ends (struct trace_hooks of source.h attaches them), and the list of them. A hook has
 * alternatives, in order: functions whose names and arguments differ between versions of the
 * driver, or other places where the same can be seen. The catalogue is compiled in
 * (hooks.d/nvidia.json); files of the same form in /etc/gpuprobe/hooks.d (*.json) add to it, and
 * one with the name of another replaces it.
 */

#include <stddef.h>

struct json_object;
struct trace_hooks;

/*
 * All hooks that a name, glob or set matches (NULL: all): an array of objects, each as `type Hook`
 * of io.gpuprobe.control. attached: those that are at work now (of all sessions), for `state` and
 * `hits`. Reads files of /proc and /sys, some milliseconds. 0 or negative errno.
 */
int trace_hooks_list(const char *pattern, struct trace_hooks *const *attached, size_t n_attached,
		     struct json_object **hooksp);
