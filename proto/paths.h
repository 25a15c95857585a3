/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the daemon's files and sockets are. The shim never opens a path that the environment gives:
 * all paths follow from the uid and, for private daemons, a short name.
 *
 *     system daemon    /run/gpuprobe
 *     session daemon   /run/user/UID/gpuprobe[-NAME] if /run/user/UID exists,
 *                      else /tmp/gpuprobe-UID[-NAME]
 *
 * A session directory counts only if lstat says: a directory, owned by the caller's uid, mode 0700.
 * NAME comes from --session=NAME or the variable GPUPROBE_SESSION; it matches [A-Za-z0-9_]{1,32}.
 * With GPUPROBE_SESSION the shim looks at that session only. Without it the shim tries the session
 * directory of its uid, then the system's. A process with AT_SECURE uses the system's only.
 */

#define PATHS_SYSTEM_DIR "/run/gpuprobe"
#define PATHS_USER_DIR "/run/user/%u" /* uid */
#define PATHS_SESSION_IN_USER_DIR "/run/user/%u/gpuprobe" /* uid; then optionally -NAME */
#define PATHS_SESSION_IN_TMP "/tmp/gpuprobe-%u" /* uid; then optionally -NAME */
#define PATHS_SESSION_VARIABLE "GPUPROBE_SESSION"
#define PATHS_TRACE_VARIABLE                                                                 \
	"GPUPROBE_TRACE" /* set for the CMD of a trace and inherited by its descendants: the \
			    process id of the CMD */
#define PATHS_SESSION_NAME_MAX 32

#define PATHS_CONTROL_SOCKET "io.gpuprobe.control" /* varlink, SOCK_STREAM */
#define PATHS_SHIM_SOCKET "shim.sock" /* wire.h, SOCK_SEQPACKET */
#define PATHS_INTEREST_PAGE "interest" /* interest.h */
