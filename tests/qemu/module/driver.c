// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0

/*
 * For test-hooks, in a virtual machine. Stands in for nvidia.ko: a character device of major 195,
 * and functions of the real one's names and arguments, which do nothing. What an ioctl calls is
 * what the test expects to see.
 */

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#define CREATE_TRACE_POINTS
#include "xid.h"

#define MAJOR_NUMBER 195
#define RM_CONTROL 0xc020462a
#define RM_ALLOC 0xc030462b
#define XID 0x4600

int rm_ioctl(void *sp, void *nv, void *file, u32 command, void *data, u32 size);

static char *version = "595.45.04";
module_param(version, charp, 0444);

noinline __noclone int nv_alloc_pages(void *nv, u32 pages, u64 page_size, bool contiguous,
				      u32 cache, bool zeroed, bool unencrypted, s32 node,
				      u64 *table, void **private) {
	barrier();
	return node;
}

noinline __noclone int nv_dma_map_alloc(void *device, u64 pages, u64 *addresses, bool contiguous,
					void **private) {
	barrier();
	return 0;
}

noinline __noclone void nv_post_event(void *event, u32 handle, u32 index, u32 info32, u16 info16,
				      bool valid) {
	barrier();
}

noinline __noclone int os_acquire_rwlock_write(void *lock) {
	barrier();
	return 0;
}

struct item {
	struct list_head node;
	void (*function)(void *);
};

noinline __noclone int nv_kthread_q_schedule_q_item(void *queue, struct item *item) {
	barrier();
	return 1;
}

static noinline __noclone long nvidia_unlocked_ioctl(struct file *file, unsigned int command,
						     unsigned long argument) {
	u8 data[48];
	u32 status = 0x1f;
	struct item item = { .function = (void *)0x1234 };

	if (command == XID) {
		trace_nvidia_dev_xid("0000:3b:00", 31, "pid=1, MMU Fault");
		return 0;
	}
	if (command != RM_CONTROL && command != RM_ALLOC)
		return -EINVAL;
	if (copy_from_user(data, (void __user *)argument, _IOC_SIZE(command)))
		return -EFAULT;
	os_acquire_rwlock_write((void *)0x77);
	rm_ioctl(NULL, NULL, file, command, data, _IOC_SIZE(command));
	if (command == RM_ALLOC) {
		nv_alloc_pages(NULL, 4, 65536, true, 2, false, true, -7, NULL, NULL);
		nv_dma_map_alloc(NULL, 9, NULL, false, NULL);
		nv_post_event(NULL, 0xc1d00001, 5, 6, 7, true);
		nv_kthread_q_schedule_q_item(NULL, &item);
		return 0;
	}
	return copy_to_user((void __user *)(argument + 28), &status, sizeof(status)) ? -EFAULT : 0;
}

static noinline __noclone int nvidia_open(struct inode *inode, struct file *file) {
	return 0;
}

static noinline __noclone int nvidia_close(struct inode *inode, struct file *file) {
	return 0;
}

noinline __noclone int nvidia_mmap(struct file *file, struct vm_area_struct *area) {
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_close,
	.unlocked_ioctl = nvidia_unlocked_ioctl,
	.mmap = nvidia_mmap,
};

static int show_version(struct seq_file *file, void *data) {
	seq_printf(file,
		   "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  "
		   "(test)\nGCC version: none\n",
		   version);
	return 0;
}

static struct proc_dir_entry *folder;

static int __init stand_in_init(void) {
	folder = proc_mkdir("driver/nvidia", NULL);
	if (folder)
		proc_create_single("version", 0444, folder, show_version);
	return register_chrdev(MAJOR_NUMBER, "nvidia", &operations);
}

static void __exit stand_in_exit(void) {
	unregister_chrdev(MAJOR_NUMBER, "nvidia");
	proc_remove(folder);
}

module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_DESCRIPTION("stands in for a driver in tests");
MODULE_LICENSE("GPL");
