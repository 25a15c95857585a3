/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The verbs update and delete of gpuprobectl map. */

struct ctl;

int ctl_map_update(struct ctl *ctl, int argc, char **argv);
int ctl_map_delete(struct ctl *ctl, int argc, char **argv);
