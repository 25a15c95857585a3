/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The texts of the interface files, embedded at build time by embed.py. */

extern const char varlink_org_varlink_service[];
extern const char varlink_io_gpuprobe_control[]; /* proto/io.gpuprobe.control.varlink */
