/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cupti-abi.h"

/*
 * Loads libcupti.so at `path`, or (NULL or empty) the one that the process has already, else the
 * first one of the places where toolkits and wheels put it; fills in the table. Returns NULL, or
 * why not: a static line. What is loaded stays.
 */
const char *find_cupti(const char *path, struct cupti *table);
