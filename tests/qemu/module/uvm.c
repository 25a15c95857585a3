// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0

/*
 * For test-hooks, in a virtual machine. Stands in for nvidia-uvm.ko: a device of a major that the
 * kernel chooses.
 */

#include <linux/fs.h>
#include <linux/module.h>
#include <linux/uaccess.h>

static int major;

noinline __noclone int nv_kthread_q_schedule_q_item(void *queue, void *item) {
	barrier();
	return 1;
}

static noinline __noclone int uvm_migrate(void *space, void *mm, u64 base, u64 length, u32 to,
					  u32 flags, void *iterator, void *tracker) {
	barrier();
	return -3;
}

noinline __noclone void uvm_perf_event_notify(void *events, u32 id, void *data) {
	barrier();
}

static noinline __noclone long uvm_unlocked_ioctl_entry(struct file *file, unsigned int command,
							unsigned long argument) {
	u32 status = 0x57;

	uvm_migrate(NULL, NULL, 0x7f0000000000, 2 << 20, 1, 0, NULL, NULL);
	uvm_perf_event_notify(NULL, 4, NULL);
	return copy_to_user((void __user *)argument, &status, sizeof(status)) ? -EFAULT : 0;
}

static noinline __noclone int uvm_open_entry(struct inode *inode, struct file *file) {
	return 0;
}

static noinline __noclone int uvm_release_entry(struct inode *inode, struct file *file) {
	return 0;
}

static noinline __noclone int uvm_mmap_entry(struct file *file, struct vm_area_struct *area) {
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = uvm_open_entry,
	.release = uvm_release_entry,
	.unlocked_ioctl = uvm_unlocked_ioctl_entry,
	.mmap = uvm_mmap_entry,
};

static int __init uvm_init(void) {
	major = register_chrdev(0, "nvidia-uvm", &operations);
	return major < 0 ? major : 0;
}

static void __exit uvm_exit(void) {
	unregister_chrdev(major, "nvidia-uvm");
}

module_init(uvm_init);
module_exit(uvm_exit);
MODULE_DESCRIPTION("stands in for a driver in tests");
MODULE_LICENSE("GPL");
