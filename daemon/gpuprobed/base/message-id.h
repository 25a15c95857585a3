/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages that the journal knows by an id: systemd/gpuprobed.catalog explains each. An id never
 * changes its meaning. */

#define MESSAGE_STARTED "971cd876cfcc4cb08e73befaf1807870"
#define MESSAGE_STOPS "90e56e24af1a45c6a2c99b5429c3d7e4"
#define MESSAGE_ATTACHED "a5954d6ac5904286b7de9cf7469c3365"
#define MESSAGE_DETACHED "ae5ceb3fe37a4719822f79b180d2b74d"
#define MESSAGE_METRICS_NOT_WRITTEN "5d2a4b1f60e94f0c8d7c6a3c1e0fb942"
#define MESSAGE_EXHAUSTED "c0ad53b1e0a44a0d9d1e6b7f4f5a8e23"
#define MESSAGE_FULL "7b0e5c8a92d14e6fb3a1d4f60c2987e5"
#define MESSAGE_WORKER_CRASHED "a3f28a0fe4454af5af8d2ac7689e6108"
