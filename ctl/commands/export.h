/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* map export and what goes with it. */

#include "ctl/base/ctl.h"

int ctl_map_export(struct ctl *ctl, int argc, char **argv);
int ctl_map_unexport(struct ctl *ctl, int argc, char **argv);
int ctl_map_exports(struct ctl *ctl, int argc, char **argv);

/* Calls ExportMap, and prints the names of the metrics. Returns the exit status. */
int ctl_export_map(struct ctl *ctl, json_object *consume_parameters, const char *subject);
