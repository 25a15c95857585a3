/* SPDX-License-Identifier: Apache-2.0 */

#include "metrics-output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "daemon/gpuprobed/daemon.h"
#include "daemon/gpuprobed/base/log.h"
#include "metrics.h"

#define SOCKET_PREFIX "unix:"

struct metrics {
	struct metrics_file *files[CONFIG_LIST_MAX];
	struct metrics_socket *sockets[CONFIG_LIST_MAX];
	char troubles[CONFIG_LIST_MAX][512]; /* of sockets */
};

static bool is_socket(const char *text) {
	return !strncmp(text, SOCKET_PREFIX, strlen(SOCKET_PREFIX));
}

int metrics_check_output(const char *text, char *error, size_t n_error) {
	const char *path = is_socket(text) ? text + strlen(SOCKET_PREFIX) : text;
	size_t n = strlen(path);

	if (path[0] != '/' || path[n - 1] == '/')
		snprintf(error, n_error,
			 "expected the absolute path of a file, or unix: and that of a socket");
	else if (is_socket(text) && n >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		snprintf(error, n_error, "the path of a socket has at most %zu bytes",
			 sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
	else
		return 0;
	return -EINVAL;
}

int metrics_check_mode(const char *text, unsigned int *modep, char *error, size_t n_error) {
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (text[0] < '0' || text[0] > '7' || *end || mode > 0666 || (mode & ~0666UL) ||
	    !(mode & 0400)) {
		snprintf(error, n_error,
			 "expected the mode of a file that its owner can read, in octal: 0640, "
			 "0644, 0600");
		return -EINVAL;
	}
	*modep = (unsigned int)mode;
	return 0;
}

int metrics_new(struct metrics **metricsp, struct daemon *daemon) {
	const struct config_list *outputs = &daemon->config->metrics;
	struct metrics *metrics = calloc(1, sizeof(*metrics));
	int r = metrics ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < outputs->n; i++) {
		const char *text = outputs->items[i];

		if (!is_socket(text)) {
			r = metrics_file_new(&metrics->files[i], daemon, text);
			continue;
		}
		if (metrics_socket_new(&metrics->sockets[i], daemon, text + strlen(SOCKET_PREFIX),
				       metrics->troubles[i], sizeof(metrics->troubles[i])) < 0)
			log_warning("%s", metrics->troubles[i]);
	}
	if (r < 0)
		metrics_free(metrics);
	else
		*metricsp = metrics;
	return r;
}

struct metrics *metrics_free(struct metrics *metrics) {
	if (!metrics)
		return NULL;
	for (size_t i = 0; i < CONFIG_LIST_MAX; i++) {
		metrics_file_free(metrics->files[i]);
		metrics_socket_free(metrics->sockets[i]);
	}
	free(metrics);
	return NULL;
}

void metrics_each_trouble(const struct metrics *metrics,
			  void (*take)(const char *line, void *userdata), void *userdata) {
	for (size_t i = 0; metrics && i < CONFIG_LIST_MAX; i++) {
		const char *trouble =
			metrics->files[i] ? metrics_file_trouble(metrics->files[i]) : NULL;

		if (trouble)
			take(trouble, userdata);
		if (metrics->troubles[i][0])
			take(metrics->troubles[i], userdata);
	}
}
