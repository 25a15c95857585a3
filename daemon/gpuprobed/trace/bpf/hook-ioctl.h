/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For hook.bpf.c: ioctls, their bytes, and which device a file is of. */

static __always_inline __u16 read_bytes(__u8 *bytes, __u64 address, __u32 size) {
	if (!address || !size)
		return 0;
	if (size > HOOK_IOCTL_BYTES)
		size = HOOK_IOCTL_BYTES;
	if (!bpf_probe_read_user(bytes, size, (const void *)address))
		return size;
	/* the size was a guess, and the page ends */
	for (__u32 less = HOOK_IOCTL_BYTES / 2; less >= 4; less /= 2)
		if (less < size && !bpf_probe_read_user(bytes, less, (const void *)address))
			return less;
	return 0;
}

#define COMMAND_NUMBER(command) ((command) & 0xff)
#define COMMAND_TYPE(command) ((command) >> 8 & 0xff)
#define COMMAND_SIZE(command) ((command) >> 16 & 0x3fff)

/* Sizes of UVM's are not in their numbers. */
static __always_inline __u32 argument_size(const struct hook_ioctl *io) {
	return io->device == TRACE_DEVICE_UVM || io->device == TRACE_DEVICE_UVM_TOOLS
		       ? HOOK_IOCTL_BYTES
		       : COMMAND_SIZE(io->command);
}

static __always_inline __u64 word_of(const struct hook_ioctl *io, __u32 offset, __u32 size) {
	__u64 value = 0;

	if (offset + size <= io->n_before && offset + size <= HOOK_IOCTL_BYTES)
		__builtin_memcpy(&value, io->before + offset, size);
	return value;
}

/* RM_CONTROL, RM_ALLOC and XFER have a pointer to the parameters proper (structs NVOS54, NVOS64,
 * NVOS21, nv_ioctl_xfer_t). */
static __always_inline void read_inner(struct hook_ioctl *io) {
	__u32 size = COMMAND_SIZE(io->command), n = HOOK_IOCTL_BYTES;
	__u64 address = 0, known = 0;

	if (COMMAND_TYPE(io->command) != 'F' || io->device == TRACE_DEVICE_UVM ||
	    io->device == TRACE_DEVICE_UVM_TOOLS)
		return;
	switch (COMMAND_NUMBER(io->command)) {
	case 0x2a:
		address = word_of(io, 16, 8);
		known = word_of(io, 24, 4);
		if (!known)
			return;
		break;
	case 0x2b: /* 0: the class says how large they are */
		address = word_of(io, 16, 8);
		known = size == 48 ? word_of(io, 32, 4) : size == 32 ? word_of(io, 24, 4) : 0;
		break;
	case 211:
		address = word_of(io, 8, 8);
		known = word_of(io, 4, 4);
		if (!known)
			return;
		break;
	}
	if (known && known < n)
		n = known;
	io->n_inner = read_bytes(io->inner, address, n);
}

/* Which of the driver's devices it is. */
static __always_inline int find_device(__u32 rdev, __u8 *device, __u8 *minor) {
	__u32 major = rdev >> 20, number = rdev & 0xfffff;

	for (__u32 i = 0; i < HOOK_DEVICES_MAX; i++) {
		if (i >= config.n_devices)
			break;
		if (config.devices[i].major == major && number >= config.devices[i].first &&
		    number <= config.devices[i].last) {
			*device = config.devices[i].device;
			*minor = number;
			return 1;
		}
	}
	return 0;
}

static __always_inline int device_of_file(__u64 file, __u8 *device, __u8 *minor) {
	__u64 inode;

	if (!(config.flags & HOOK_CONFIG_OFFSETS) || !file)
		return 0;
	inode = read64(file, config.file_inode);
	return inode && find_device(read32(inode, config.inode_rdev), device, minor);
}

static __always_inline __u64 file_of(__u32 fd) {
	__u64 files = read64(bpf_get_current_task(), config.task_files), table;

	if (!files)
		return 0;
	table = read64(files, config.files_fdt);
	if (!table || fd >= read32(table, config.fdt_max))
		return 0;
	return read64(read64(table, config.fdt_fd) + 8 * (__u64)fd, 0);
}

static __always_inline void ioctl_begin(__u32 row, __u8 device, __u8 minor, __u32 command,
					__u64 argument) {
	__u64 id = bpf_get_current_pid_tgid(), key = HOOK_KEY((__u32)id, row);
	struct hook_ioctl *io;

	if (bpf_map_update_elem(&ioctls, &key, &no_ioctl, BPF_NOEXIST)) {
		count(&lost, 0); /* this one, as there is no room; or the one before, whose end was
				    missed */
		if (bpf_map_update_elem(&ioctls, &key, &no_ioctl, BPF_EXIST))
			return;
	}
	io = bpf_map_lookup_elem(&ioctls, &key);
	if (!io)
		return;
	io->header.type = HOOK_RECORD_IOCTL;
	io->header.row = row;
	io->header.pid = id >> 32;
	io->header.tid = id;
	io->command = command;
	io->argument = argument;
	io->device = device;
	io->minor = minor;
	io->n_before = read_bytes(io->before, argument, argument_size(io));
	read_inner(io);
	io->header.start = bpf_ktime_get_ns();
}

/* Two of UVM's that every program makes have rmStatus far behind: MAP_EXTERNAL_ALLOCATION and
 * ALLOC_SEMAPHORE_POOL. */
static __always_inline void read_status(struct hook_ioctl *io) {
	__u64 offset = io->command == 33 ? 9260 : io->command == 68 ? 9240 : 0;

	if (io->device == TRACE_DEVICE_UVM && offset)
		io->has_status = !bpf_probe_read_user(&io->status, sizeof(io->status),
						      (const void *)(io->argument + offset));
}

static __always_inline void ioctl_end(__u32 row, __s32 result) {
	__u64 key = HOOK_KEY((__u32)bpf_get_current_pid_tgid(), row), now = bpf_ktime_get_ns();
	struct hook_ioctl *io = bpf_map_lookup_elem(&ioctls, &key);

	if (!io)
		return;
	io->header.end = now;
	io->header.result = result;
	if (now - io->header.start >= config.min_duration) {
		count(&hits, row);
		io->n_after = read_bytes(io->after, io->argument, argument_size(io));
		read_status(io);
		if (bpf_ringbuf_output(&ring, io, sizeof(*io), BPF_RB_NO_WAKEUP))
			count(&lost, 0);
	}
	bpf_map_delete_elem(&ioctls, &key);
}
