/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages of the daemon, on standard error. Only the daemon's own code logs; libraries return
 * errors. */

enum log_level {
	LOG_LEVEL_ERROR = 3, /* as in syslog(3) */
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
};

/* One line; bytes that are not printable are shown as '?'. */
void log_message(enum log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * A line that the journal can be asked for: with an id of message-id.h and fields, pairs of a name
 * and a value that NULL ends. Elsewhere it is as any other.
 */
void log_event(enum log_level level, const char *message_id, const char *const *fields,
	       const char *format, ...) __attribute__((format(printf, 4, 5)));

#define log_error(...) log_message(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...) log_message(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_message(LOG_LEVEL_INFO, __VA_ARGS__)
