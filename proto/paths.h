/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the daemon is found. The shim never opens a path that the environment gives, so
 * everything is derived from the uid and, for private daemons, a short name.
 *
 * system daemon    /run/gpuprobe
 * session daemon   /run/user/<uid>/gpuprobe[-<name>] if /run/user/<uid> exists, else
 * /tmp/gpuprobe-<uid>[-<name>]
 *
 * A session directory counts only if lstat says: a directory, owned by the caller's uid, mode 0700.
 * <name> comes from --session=NAME or the variable GPUPROBE_SESSION and matches [A-Za-z0-9_]{1,32};
 * GPUPROBE_SESSION makes the shim look at that session alone. Without it the shim tries the session
 * directory of its uid, then the system one. Under AT_SECURE only the system one.
 */

#define PATHS_SYSTEM_DIR "/run/gpuprobe"
#define PATHS_USER_DIR "/run/user/%u" /* uid */
#define PATHS_SESSION_IN_USER_DIR "/run/user/%u/gpuprobe" /* uid; then optionally -NAME */
#define PATHS_SESSION_IN_TMP "/tmp/gpuprobe-%u" /* uid; then optionally -NAME */
#define PATHS_SESSION_VARIABLE "GPUPROBE_SESSION"
#define PATHS_TRACE_VARIABLE \
	"GPUPROBE_TRACE" /* the process id of the CMD of a trace, for all that descend from it */
#define PATHS_SESSION_NAME_MAX 32

#define PATHS_CONTROL_SOCKET "io.gpuprobe.control" /* varlink, SOCK_STREAM */
#define PATHS_SHIM_SOCKET "shim.sock" /* wire.h, SOCK_SEQPACKET */
#define PATHS_INTEREST_PAGE "interest" /* interest.h */
