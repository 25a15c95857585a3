/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Hooks: ioctls of NVIDIA's devices, functions of its driver, tracepoints and processes' beginnings
 * and ends (struct trace_hooks attaches them), and the list of them. A hook has
 * alternatives, in order: functions whose names and arguments differ between versions of the
 * driver, or other places where the same can be seen. The catalogue is compiled in
 * (hooks.d/nvidia.json); files of the same form in /etc/gpuprobe/hooks.d (*.json) add to it, and
 * one with the name of another replaces it.
 */

#include <stddef.h>

#include "daemon/gpuprobed/trace/sink/sink.h"

struct json_object;

/* B: ioctls and other hooks of the kernel, processes' beginnings and ends, and the user's probes.
 */
struct trace_hooks;
int trace_hooks_new(struct trace_hooks **hooksp, struct trace_session *session,
		    const struct trace_options *options);
bool trace_hooks_drain(struct trace_hooks *hooks); /* false: a part, there is more */
/* Whether all is attached, or never will be: files of users may take their time. It gets so by
 * trace_hooks_drain(). */
bool trace_hooks_ready(const struct trace_hooks *hooks);
struct trace_hooks *trace_hooks_free(struct trace_hooks *hooks);

/*
 * All hooks that a name, glob or set matches (NULL: all): an array of objects, each as `type Hook`
 * of io.gpuprobe.control. attached: those that are at work now (of all sessions), for `state` and
 * `hits`. Reads files of /proc and /sys, some milliseconds. 0 or negative errno.
 */
int trace_hooks_list(const char *pattern, struct trace_hooks *const *attached, size_t n_attached,
		     struct json_object **hooksp);
