/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A client of NVIDIA's resource manager, as every CUDA program is one: it opens /dev/nvidiactl and
 * makes objects there, without privileges and without CUDA. Layouts are those of the public headers
 * of NVIDIA's open kernel modules; those in use here are the same from 525 on (RM_ALLOC with the 32
 * bytes of NVOS21, which every driver since then takes beside NVOS64; where its status is differs).
 * What a structure of parameters has grown by since is zero: for objects the driver reads as much
 * as it knows of a buffer that is larger than any.
 *
 * Functions return 0, negative errno, or one of:
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

enum {
	_RM_E_SUCCESS,
	RM_E_REFUSED, /* the driver said no: client->status */
	RM_E_VERSION, /* a driver that is too old, or whose version makes no sense */
	RM_E_ANSWER, /* what the driver answered makes no sense */
};

#define RM_OLDEST 525
#define RM_NEWEST_TRIED 580 /* on a GPU */
#define RM_GPUS_MAX 32

/* Numbers of NV_STATUS that mean something here. */
enum {
	RM_OK = 0,
	RM_INSUFFICIENT_PERMISSIONS = 0x1b,
	RM_INVALID_PARAM_STRUCT = 0x3a,
};

struct rm_client {
	const struct rm_driver *driver;
	int ctl; /* /dev/nvidiactl */
	uint32_t root; /* handle of the client */
	char version[64]; /* "580.159.04" */
	unsigned int branch; /* 580 */
	uint32_t status; /* NV_STATUS of the last call that was refused */
	char error[160]; /* the last failure: "RM_ALLOC 0x80: NV_ERR_..." without an end of line */
};

/* A GPU that the driver knows. */
struct rm_card {
	uint32_t id; /* of the driver */
	uint32_t minor; /* of /dev/nvidiaN */
	uint32_t domain;
	uint8_t bus, slot, function;
};

struct rm_gpu {
	struct rm_client *client;
	struct rm_card card;
	int fd; /* /dev/nvidiaN, which keeps it awake; -1: not open */
	uint32_t device, subdevice; /* handles */
	uint64_t read_ns; /* how long it takes to read its timer; 0: not known */
};

/* Memory of the driver's that both sides see, read only here. */
struct rm_memory {
	uint32_t handle; /* 0: none */
	void *address; /* NULL: not mapped */
	size_t size;
};

/* Opens the driver and looks at its version. On failure client->error says what was wrong;
 * _deinit() is due in any case. */
int rm_client_init(struct rm_client *client, const struct rm_driver *driver);
void rm_client_deinit(struct rm_client *client);

/* The GPUs that there are, at most RM_GPUS_MAX. */
int rm_cards(struct rm_client *client, struct rm_card *cards, size_t *np);

/*
 * Opens a GPU. The driver wakes it, which takes about a second if no other process uses it.
 * rm_gpu_close() may also be called after a failure.
 */
int rm_gpu_open(struct rm_gpu *gpu, struct rm_client *client, const struct rm_card *card);
void rm_gpu_close(struct rm_gpu *gpu);

/* An object of that class; n bytes of parameters. */
int rm_alloc(struct rm_client *client, uint32_t parent, uint32_t class, const void *parameters,
	     size_t n, uint32_t *handlep);
void rm_free(struct rm_client *client, uint32_t handle);
/* parameters: n bytes, exactly as many as the command has. */
int rm_control(struct rm_client *client, uint32_t object, uint32_t command, void *parameters,
	       size_t n);

/* What the driver answered makes no sense: keeps that in client->error and returns RM_E_ANSWER. */
int rm_answer_wrong(struct rm_client *client, const char *what);

/* Memory that belongs to no GPU. */
int rm_memory_init(struct rm_memory *memory, struct rm_client *client, size_t size);
void rm_memory_deinit(struct rm_memory *memory, struct rm_client *client);
