/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The outputs of metrics that the configuration names: makes a file or a socket for each, keeps
 * what went wrong with them, and frees them.
 */

#include "metrics-output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics.h"
#include "daemon/gpuprobed/base/log.h"

struct metrics {
	struct metrics_file *files[CONFIG_LIST_MAX];
	struct metrics_socket *sockets[CONFIG_LIST_MAX];
	char troubles[CONFIG_LIST_MAX][512]; /* of sockets */
};

int metrics_new(struct metrics **metricsp, struct metrics_context *context) {
	const struct config_list *outputs = &context->image->config->metrics;
	struct metrics *metrics = calloc(1, sizeof(*metrics));
	int r = metrics ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < outputs->n; i++) {
		const char *text = outputs->items[i];

		if (!config_is_socket(text)) {
			r = metrics_file_new(&metrics->files[i], context, text);
			continue;
		}
		if (metrics_socket_new(&metrics->sockets[i], context,
				       text + strlen(CONFIG_SOCKET_PREFIX), metrics->troubles[i],
				       sizeof(metrics->troubles[i])) < 0)
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
