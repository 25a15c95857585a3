/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One connection to the daemon, one list of replaced images, one lock around both. The lock is waited for no longer
 * than the longest deadline, and never held while the driver loads or unloads. A process that forked after it came here first leaves
 * everything alone in the child: CUDA does not work there either.
 *
 * After a failure (late, broken, absurd) the connection is closed and no daemon is asked until its interest page has changed or
 * ten seconds have passed, so that a sick daemon costs one deadline and not one a module.
 */

#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "arm.h"
#include "image.h"
#include "interest-page.h"

#define BACK_OFF_MS 10000
#define LOCK_WAIT_S 5
#define CONTENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner; /* the process that came here first */
static struct load *loads;
static struct client client = CLIENT_NONE;
static struct interest interest; /* what the connection was opened for */
static uint64_t failed_generation, failed_until_ms;

bool load_lock(void)
{
	struct timespec until;

	if (owner && owner != getpid())
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOCK_WAIT_S;
	if (pthread_mutex_timedlock(&lock, &until) != 0)
		return false;
	owner = getpid();
	return true;
}

void load_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

struct load *load_first(void)
{
	return loads;
}

void load_give_up(void)
{
	client_close(&client);
	failed_generation = interest.generation;
	failed_until_ms = client_now_ms() + BACK_OFF_MS;
}

struct client *load_client(uint64_t *deadline_ms)
{
	*deadline_ms = client_now_ms() + interest.deadline_ms;
	return client_is_open(&client) ? &client : NULL;
}

const char *load_folder(void)
{
	return interest.folder;
}

uint32_t load_deadline_ms(void)
{
	return interest.deadline_ms;
}

void load_report(uint64_t module_id, const char *reason)
{
	union wire_message message;
	uint64_t deadline_ms;

	if (!load_client(&deadline_ms))
		return;
	memset(&message, 0, sizeof(message));
	client_prepare(&client, &message, WIRE_REPORT, 0);
	message.report.module_id = module_id;
	strncpy(message.report.reason, reason, WIRE_REASON_MAX - 1);
	if (!client_send(&client, &message, -1, deadline_ms))
		load_give_up();
}

static bool opted_out(void)
{
	const char *choice = secure_getenv("GPUPROBE");

	return choice && !strcmp(choice, "off");
}

/* Is a daemon interested, and has it not just failed us? */
static bool interested(struct interest *found)
{
	return !opted_out() && interest_find(found) &&
	       !(found->generation == failed_generation && client_now_ms() < failed_until_ms);
}

/* Connects to the interested daemon, if that is not done. */
static bool connected(const struct interest *found, uint64_t deadline_ms)
{
	struct wire_welcome welcome;
	int version = 0;

	if (client_is_open(&client) && !strcmp(interest.folder, found->folder)) {
		interest = *found;
		return true;
	}
	client_close(&client);
	interest = *found;
	if (driver_own()->driver_get_version(&version) != 0)
		version = 0;
	return client_open(&client, found->folder, WIRE_ROLE_LOADER, (uint32_t)version, deadline_ms, &welcome);
}

/* Fills in which device the module is for: the current context's, or the first. */
static bool describe_device(struct wire_image *message)
{
	const struct driver *driver = driver_own();
	driver_handle context = NULL;
	int device = 0, major, minor;

	if (driver->ctx_get_current(&context) != 0)
		return false;
	if ((context ? driver->ctx_get_device(&device) : driver->device_get(&device, 0)) != 0)
		return false;
	if (driver->device_get_attribute(&major, DRIVER_ATTRIBUTE_CAPABILITY_MAJOR, device) != 0 ||
	    driver->device_get_attribute(&minor, DRIVER_ATTRIBUTE_CAPABILITY_MINOR, device) != 0)
		return false;
	message->capability_major = (uint32_t)major;
	message->capability_minor = (uint32_t)minor;
	message->device = (uint32_t)device;
	return true;
}

/* Maps what the daemon answered; consumes fd. */
static bool map_reply(struct load *load, int fd, uint64_t size)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	load->image = MAP_FAILED;
	if (seals >= 0 && (seals & CONTENT_SEALS) == CONTENT_SEALS && fstat(fd, &status) == 0 &&
	    (uint64_t)status.st_size == size && size && size <= WIRE_IMAGE_SIZE_MAX)
		load->image = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	load->size = size;
	return load->image != MAP_FAILED;
}

static bool receive_slots(struct load *load, uint32_t count, uint64_t deadline_ms)
{
	union wire_message message;

	if (count > WIRE_SLOTS_MAX)
		return false;
	load->slots = calloc(count ? count : 1, sizeof(*load->slots));
	if (!load->slots)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		if (!client_receive(&client, &message, WIRE_SLOT, NULL, deadline_ms) ||
		    message.slot.module_id != load->module_id || message.slot.symbol[WIRE_SYMBOL_MAX - 1])
			return false;
		load->slots[i].map_id = message.slot.map_id;
		memcpy(load->slots[i].symbol, message.slot.symbol, WIRE_SYMBOL_MAX);
	}
	load->slot_count = count;
	return true;
}

static void free_load(struct load *load)
{
	if (!load)
		return;
	if (load->image && load->image != MAP_FAILED)
		munmap(load->image, load->size);
	free(load->slots);
	free(load);
}

/* Sends the image and takes the answer. NULL with *broken false: the daemon says to use the own image. */
static struct load *ask(const struct image *image, uint64_t deadline_ms, bool *broken)
{
	union wire_message message;
	struct load *load;
	int sent, received = -1;

	*broken = false;
	memset(&message, 0, sizeof(message));
	client_prepare(&client, &message, WIRE_IMAGE, 0);
	message.image.image_size = image->size;
	message.image.kind = image->kind;
	message.image.flags = image->flags;
	if (!describe_device(&message.image))
		return NULL;
	sent = image_to_memfd(image);
	if (sent < 0)
		return NULL;
	*broken = !client_call(&client, &message, sent, WIRE_IMAGE_REPLY, &received, deadline_ms);
	close(sent);
	if (*broken)
		return NULL;
	if (message.image_reply.verdict != WIRE_VERDICT_REPLACED || received < 0) {
		*broken = message.image_reply.verdict != WIRE_VERDICT_OWN || received >= 0;
		if (received >= 0)
			close(received);
		return NULL;
	}
	*broken = true;
	load = calloc(1, sizeof(*load));
	if (!load) {
		close(received);
		return NULL;
	}
	load->module_id = message.image_reply.module_id;
	if (!map_reply(load, received, message.image_reply.image_size) ||
	    !receive_slots(load, message.image_reply.slot_count, deadline_ms)) {
		free_load(load);
		return NULL;
	}
	*broken = false;
	return load;
}

struct load *load_replace(const void *code)
{
	struct interest found;
	struct image image;
	struct load *load = NULL;
	bool broken = false;
	uint64_t deadline_ms;

	if (!load_lock())
		return NULL;
	if (interested(&found) && driver_own() && image_recognise(&image, code)) {
		deadline_ms = client_now_ms() + found.deadline_ms;
		if (connected(&found, deadline_ms))
			load = ask(&image, deadline_ms, &broken);
		else
			broken = true;
		if (broken)
			load_give_up();
	}
	load_unlock();
	return load;
}

const void *load_image(const struct load *load)
{
	return load->image;
}

void load_commit(struct load *load, enum load_kind kind, driver_handle handle)
{
	load->kind = kind;
	load->handle = handle;
	if (!load_lock())
		return; /* never armed, and its image stays mapped */
	if (kind == LOAD_MODULE)
		driver_own()->ctx_get_current(&load->context);
	load->next = loads;
	loads = load;
	arm_load_added();
	load_unlock();
	arm_current();
}

void load_refused(struct load *load, driver_result result)
{
	char reason[WIRE_REASON_MAX];

	if (load_lock()) {
		snprintf(reason, sizeof(reason), "the driver refused the probed image: error %d", result);
		load_report(load->module_id, reason);
		load_unlock();
	}
	free_load(load);
}

struct load *load_begin_unload(enum load_kind kind, driver_handle handle)
{
	struct load *load = NULL;

	if (!loads || !load_lock())
		return NULL;
	for (struct load **link = &loads; *link; link = &(*link)->next) {
		if ((*link)->kind == kind && (*link)->handle == handle) {
			load = *link;
			*link = load->next;
			arm_load_removed(load->module_id);
			break;
		}
	}
	load_unlock();
	return load;
}

void load_end_unload(struct load *load)
{
	union wire_message message;
	uint64_t deadline_ms;

	if (load_lock()) {
		if (load_client(&deadline_ms)) {
			memset(&message, 0, sizeof(message));
			client_prepare(&client, &message, WIRE_UNLOAD, 0);
			message.unload.module_id = load->module_id;
			if (!client_send(&client, &message, -1, deadline_ms))
				load_give_up();
		}
		load_unlock();
	}
	free_load(load);
}

bool load_file_open(struct load_file *file, const char *path)
{
	struct interest found;
	struct stat status;
	bool wanted;
	int fd, saved = errno;

	file->data = MAP_FAILED;
	if (!path || !load_lock())
		return false;
	wanted = interested(&found);
	load_unlock();
	fd = wanted ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (fd >= 0) {
		/* one byte more than the file, so that PTX ends with a NUL */
		if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
		    (uint64_t)status.st_size < WIRE_IMAGE_SIZE_MAX) {
			file->size = (size_t)status.st_size + 1;
			file->data = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		}
		if (file->data != MAP_FAILED && pread(fd, file->data, file->size - 1, 0) != (ssize_t)file->size - 1)
			load_file_close(file);
		close(fd);
	}
	errno = saved;
	return file->data != MAP_FAILED;
}

void load_file_close(struct load_file *file)
{
	if (file->data != MAP_FAILED)
		munmap(file->data, file->size);
	file->data = MAP_FAILED;
}
