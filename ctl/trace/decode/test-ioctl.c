/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of ioctl.c, rm.c and uvm.c: golden vectors of each kind of ioctl, also cut off
 * everywhere. Everything in data/ must have a name.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "decode.h"
#include "ioctl.h"

static const char *data_folder;

/* What decode.c does for decoders, in small. */
struct trace_decoder {
	char text[512];
	size_t used;
};

char *trace_decoder_text(struct trace_decoder *decoder, const char *text, size_t n) {
	char *copy = decoder->text + decoder->used;

	assert_true(n < sizeof(decoder->text) - decoder->used);
	decoder->used += n + 1;
	memcpy(copy, text, n);
	copy[n] = '\0';
	return copy;
}

struct trace_value *trace_item_value(struct trace_item *item, const char *name,
				     enum trace_value_kind kind, int64_t number) {
	assert_true(item->n_values < TRACE_VALUES_MAX);
	item->values[item->n_values] =
		(struct trace_value){ .name = name, .kind = kind, .number = number };
	return &item->values[item->n_values++];
}

/* An item of a whole record, as decode.c begins it. */
static void decode(const struct trace_ioctl *record, const char *driver,
		   struct trace_decoder *decoder, struct trace_item *item) {
	*decoder = (struct trace_decoder){ .used = 0 };
	*item = (struct trace_item){
		.kind = EVENT_IOCTL,
		.open = record->record.flags & 1,
		.has_result = !(record->record.flags & 1),
		.result = record->result,
		.failed = record->result < 0,
	};
	trace_decode_ioctl(decoder, record, driver, item);
}

struct vector {
	const char *what;
	uint8_t device, minor;
	uint32_t command;
	int32_t result;
	const char *before, *after,
		*inner; /* words of 4 bytes in hexadecimal, "N*" before one repeats it */
	const char *driver;
	const char *expect;
};

#define RM(nr, size) _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size)

static const struct vector vectors[] = {
	{ "free", TRACE_DEVICE_CTL, 0, RM(0x29, 16), 0, "c1d00001 c1d00001 5c000003 0",
	  "c1d00001 c1d00001 5c000003 0", "", "580.159.04",
	  "NV_ESC_RM_FREE(hRoot=0xc1d00001, hParent=0xc1d00001, hOld=0x5c000003, "
	  "device=\"nvidiactl\") = 0 NV_OK ioctl" },
	{ "control", TRACE_DEVICE_CTL, 0, 0xc020462a, 0,
	  "c1d00001 5c000003 20801303 0 1000 7f00 28 0",
	  "c1d00001 5c000003 20801303 0 1000 7f00 28 56", "", "580.159.04",
	  "NV_ESC_RM_CONTROL(hClient=0xc1d00001, hObject=0x5c000003, "
	  "cmd=NV2080_CTRL_CMD_FB_GET_INFO_V2, flags=0x0, params=0x7f0000001000, "
	  "paramsSize=40B, device=\"nvidiactl\") = 86 NV_ERR_NOT_SUPPORTED failed ioctl" },
	{ "control with parameters", TRACE_DEVICE_GPU, 3, 0xc020462a, 0,
	  "1 2 a06c0103 0 1000 0 8 0", "1 2 a06c0103 0 1000 0 8 0", "7d0 0", "580.1",
	  "NV_ESC_RM_CONTROL(hClient=0x1, hObject=0x2, cmd=NVA06C_CTRL_CMD_SET_TIMESLICE, "
	  "flags=0x0, params=0x1000, paramsSize=8B, timesliceUs=2000, "
	  "device=\"nvidia\", minor=3) = 0 NV_OK ioctl" },
	{ "control, serialised", TRACE_DEVICE_CTL, 0, 0xc020462a, 0, "1 2 a06c0103 4 1000 0 8 0",
	  "1 2 a06c0103 4 1000 0 8 0", "7d0 0", "580.1",
	  "NV_ESC_RM_CONTROL(hClient=0x1, hObject=0x2, cmd=NVA06C_CTRL_CMD_SET_TIMESLICE, "
	  "flags=0x4, params=0x1000, paramsSize=8B, "
	  "serialised=\"FINN, not decoded\", device=\"nvidiactl\") = 0 NV_OK ioctl" },
	{ "control, unknown command and status", TRACE_DEVICE_CTL, 0, 0xc020462a, 0,
	  "1 2 99990101 0 0 0 0 0", "1 2 99990101 0 0 0 0 deadbeef", "", "580.1",
	  "NV_ESC_RM_CONTROL(hClient=0x1, hObject=0x2, cmd=2576941313, flags=0x0, params=0x0, "
	  "paramsSize=0B, device=\"nvidiactl\") = 3735928559 "
	  "failed ioctl" },
	{ "errno", TRACE_DEVICE_CTL, 0, 0xc020462a, -EINVAL, "1 2 102 0 0 0 0 0",
	  "1 2 102 0 0 0 0 0", "", "580.1",
	  "NV_ESC_RM_CONTROL(hClient=0x1, hObject=0x2, cmd=NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO, "
	  "flags=0x0, params=0x0, paramsSize=0B, "
	  "device=\"nvidiactl\") = -22 EINVAL failed ioctl" },
	{ "alloc of video memory", TRACE_DEVICE_CTL, 0, 0xc030462b, 0,
	  "1 2 0 40 1000 0 0 0 80 0 0 0", "1 2 caf1 40 1000 0 0 0 80 0 0 0",
	  "1 2 1c101 0 0 0 18000000 100005 0 0 0 0 0 0 0 0 200000 0 1000 0 0 0 0 0 0 0 0 5c000009 "
	  "4*0",
	  "580.159.04",
	  "NV_ESC_RM_ALLOC(hRoot=0x1, hParent=0x2, >hNew=0xcaf1, hClass=NV01_MEMORY_LOCAL_USER, "
	  "pAllocParms=0x1000, paramsSize=128B, flags=0x0, "
	  "owner=1, type=2, flags=0x1c101, attr=0x18000000, attr2=0x100005, size=2097152B, "
	  "alignment=4096B, offset=0x0, limit=0x0, address=0x0, "
	  "hVASpace=0x5c000009, device=\"nvidiactl\") = 0 NV_OK 2097152B ioctl" },
	{ "alloc of a channel", TRACE_DEVICE_CTL, 0, 0xc030462b, 0,
	  "1 2 3 c86f 1000 0 0 0 170 0 0 0", "1 2 3 c86f 1000 0 0 0 170 0 1a 0",
	  "7 0 200000 0 400 4 8 9 a 0 0 0 0 0 0 0 0 d 0 0 0 0 0 0 0 0 0 0 0 0 0 0", "580.159.04",
	  "NV_ESC_RM_ALLOC(hRoot=0x1, hParent=0x2, >hNew=0x3, hClass=HOPPER_CHANNEL_GPFIFO_A, "
	  "pAllocParms=0x1000, paramsSize=368B, flags=0x0, "
	  "hObjectError=0x7, gpFifoOffset=0x200000, gpFifoEntries=1024, flags=0x4, "
	  "hContextShare=0x8, hVASpace=0x9, hUserdMemory=0xa, "
	  "userdOffset=0xd00000000, device=\"nvidiactl\") = 26 NV_ERR_INSUFFICIENT_RESOURCES "
	  "failed ioctl" },
	{ "alloc of a channel group, the short form", TRACE_DEVICE_CTL, 0, 0xc020462b, 0,
	  "1 2 3 a06c 1000 0 14 0", "1 2 3 a06c 1000 0 14 0", "0 0 9 1 0", "580.159.04",
	  "NV_ESC_RM_ALLOC(hRoot=0x1, hParent=0x2, >hNew=0x3, hClass=KEPLER_CHANNEL_GROUP_A, "
	  "pAllocParms=0x1000, paramsSize=20B, hVASpace=0x9, "
	  "engineType=1, device=\"nvidiactl\") = 0 NV_OK ioctl" },
	{ "alloc, serialised", TRACE_DEVICE_CTL, 0, 0xc030462b, 0, "1 2 0 40 1000 0 0 0 80 1 0 0",
	  "1 2 4 40 1000 0 0 0 80 1 0 0", "32*1", "580.159.04",
	  "NV_ESC_RM_ALLOC(hRoot=0x1, hParent=0x2, >hNew=0x4, hClass=NV01_MEMORY_LOCAL_USER, "
	  "pAllocParms=0x1000, paramsSize=128B, flags=0x1, "
	  "serialised=\"FINN, not decoded\", device=\"nvidiactl\") = 0 NV_OK ioctl" },
	{ "alloc, 515", TRACE_DEVICE_CTL, 0, 0xc028462b, 0, "1 1 0 41 0 0 0 0 0 0",
	  "1 1 5 41 0 0 0 0 51 0", "", "515.43.04",
	  "NV_ESC_RM_ALLOC(hRoot=0x1, hParent=0x1, >hNew=0x5, hClass=NV01_ROOT_CLIENT, "
	  "pAllocParms=0x0, device=\"nvidiactl\") = 81 NV_ERR_NO_MEMORY "
	  "failed ioctl" },
	{ "alloc, 525", TRACE_DEVICE_CTL, 0, 0xc028462b, 0, "1 1 0 41 0 0 0 0 2 0",
	  "1 1 5 41 0 0 0 0 2 51", "", "525.60.11",
	  "NV_ESC_RM_ALLOC(hRoot=0x1, hParent=0x1, >hNew=0x5, hClass=NV01_ROOT_CLIENT, "
	  "pAllocParms=0x0, flags=0x2, device=\"nvidiactl\") = 81 "
	  "NV_ERR_NO_MEMORY failed ioctl" },
	{ "alloc, the short form, 525", TRACE_DEVICE_CTL, 0, 0xc020462b, 0, "1 1 0 99 0 0 0 0",
	  "1 1 5 99 0 0 22 0", "", "525.60.11",
	  "NV_ESC_RM_ALLOC(hRoot=0x1, hParent=0x1, >hNew=0x5, hClass=153, pAllocParms=0x0, "
	  "device=\"nvidiactl\") = 34 NV_ERR_INVALID_CLASS failed "
	  "ioctl" },
	{ "alloc of an unknown size", TRACE_DEVICE_CTL, 0, RM(0x2b, 64), 0,
	  "1 1 0 41 0 0 0 0 0 0 0 0 0 0 0 0", "", "", "",
	  "NV_ESC_RM_ALLOC(nr=43, argumentSize=64B, device=\"nvidiactl\") = 0 ioctl" },
	{ "registered host memory", TRACE_DEVICE_CTL, 0, 0xc0384627, 0,
	  "1 2 3 71 10 0 1000 7f00 fff 0 0 0 ffffffff 0",
	  "1 2 3 71 10 0 1000 7f00 fff 0 0 0 ffffffff 0", "", "595.45.04",
	  "NV_ESC_RM_ALLOC_MEMORY(hRoot=0x1, hParent=0x2, >hNew=0x3, "
	  "hClass=NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, flags=0x10, pMemory=0x7f0000001000, "
	  "limit=0xfff, fd=-1, device=\"nvidiactl\") = 0 NV_OK 4096B ioctl" },
	{ "dup", TRACE_DEVICE_CTL, 0, 0xc01c4634, 0, "1 2 0 4 5 0 0", "1 2 3 4 5 0 0", "", "580",
	  "NV_ESC_RM_DUP_OBJECT(hClient=0x1, hParent=0x2, >hObject=0x3, hClientSrc=0x4, "
	  "hObjectSrc=0x5, flags=0x0, device=\"nvidiactl\") = 0 NV_OK "
	  "ioctl" },
	{ "share", TRACE_DEVICE_CTL, 0, 0xc0184635, 0, "1 2 7 f 60001 0", "1 2 7 f 60001 0", "",
	  "580",
	  "NV_ESC_RM_SHARE(hClient=0x1, hObject=0x2, target=7, accessMask=0xf, type=1, action=6, "
	  "device=\"nvidiactl\") = 0 NV_OK ioctl" },
	{ "map of memory", TRACE_DEVICE_CTL, 0, 0xc038464e, 0, "1 2 3 0 1000 0 10000 0 0 0 0 8 9 0",
	  "1 2 3 0 1000 0 10000 0 4000 7f00 0 8 9 0", "", "580",
	  "NV_ESC_RM_MAP_MEMORY(hClient=0x1, hDevice=0x2, hMemory=0x3, offset=0x1000, "
	  "length=65536B, >pLinearAddress=0x7f0000004000, flags=0x8, fd=9, "
	  "device=\"nvidiactl\") = 0 NV_OK 65536B ioctl" },
	{ "unmap of memory", TRACE_DEVICE_CTL, 0, 0xc020464f, 0, "1 2 3 0 4000 7f00 0 0",
	  "1 2 3 0 4000 7f00 3d 0", "", "580",
	  "NV_ESC_RM_UNMAP_MEMORY(hClient=0x1, hDevice=0x2, hMemory=0x3, "
	  "pLinearAddress=0x7f0000004000, flags=0x0, device=\"nvidiactl\") = 61 "
	  "NV_ERR_INVALID_POINTER failed ioctl" },
	{ "map for DMA, old", TRACE_DEVICE_CTL, 0, 0xc0384657, 0, "1 2 3 4 0 0 1000 0 5 0 0 0 0 0",
	  "1 2 3 4 0 0 1000 0 5 0 2000 7f 0 0", "", "550",
	  "NV_ESC_RM_MAP_MEMORY_DMA(hClient=0x1, hDevice=0x2, hDma=0x3, hMemory=0x4, offset=0x0, "
	  "length=4096B, flags=0x5, >dmaOffset=0x7f00002000, "
	  "device=\"nvidiactl\") = 0 NV_OK ioctl" },
	{ "map for DMA, new", TRACE_DEVICE_CTL, 0, 0xc0404657, 0,
	  "1 2 3 4 0 0 1000 0 5 6 0 0 0 0 0 0", "1 2 3 4 0 0 1000 0 5 6 0 0 2000 7f 40 0", "",
	  "595",
	  "NV_ESC_RM_MAP_MEMORY_DMA(hClient=0x1, hDevice=0x2, hDma=0x3, hMemory=0x4, offset=0x0, "
	  "length=4096B, flags=0x5, flags2=0x6, "
	  ">dmaOffset=0x7f00002000, device=\"nvidiactl\") = 64 NV_ERR_INVALID_STATE failed ioctl" },
	{ "heap, allocate", TRACE_DEVICE_CTL, 0, 0xc0b8464a, 0,
	  "1 2 2 9 0 0 0 0 0 0 0 0 5 6 7 0 0 0 0 0 0 0 100000 0 1000 0 0 0 0 0 0 0",
	  "1 2 2 9 0 0 0 2 0 1 0 0 5 6 7 0 0 0 0 0 0 0 100000 0 1000 0 4000 0 0 0 0 0", "", "580",
	  "NV_ESC_RM_VID_HEAP_CONTROL(hRoot=0x1, hParent=0x2, function=ALLOC_SIZE, hVASpace=0x9, "
	  ">total=8589934592B, >free=4294967296B, type=5, "
	  "flags=0x6, attr=0x7, size=1048576B, >offset=0x4000, device=\"nvidiactl\") = 0 NV_OK "
	  "1048576B ioctl" },
	{ "heap, free", TRACE_DEVICE_CTL, 0, 0xc0b8464a, 0, "1 2 3 0 0 0", "1 2 3 0 0 0", "", "580",
	  "NV_ESC_RM_VID_HEAP_CONTROL(hRoot=0x1, hParent=0x2, function=FREE, hVASpace=0x0, "
	  "device=\"nvidiactl\") = 0 NV_OK ioctl" },
	{ "register fd", TRACE_DEVICE_GPU, 0, 0xc00446c9, 0, "5", "5", "", "580",
	  "NV_ESC_REGISTER_FD(fd=5, device=\"nvidia\", minor=0) = 0 ioctl" },
	{ "event", TRACE_DEVICE_CTL, 0, 0xc01046ce, 0, "1 2 7 0", "1 2 7 0", "", "580",
	  "NV_ESC_ALLOC_OS_EVENT(hClient=0x1, hDevice=0x2, fd=7, device=\"nvidiactl\") = 0 NV_OK "
	  "ioctl" },
	{ "version", TRACE_DEVICE_CTL, 0, 0xc04846d2, 0, "32 0 2e303835 2e393531 3430 13*0",
	  "32 1 2e303835 2e393531 3430 13*0", "", "",
	  "NV_ESC_CHECK_VERSION_STR(command=50, >reply=1, version=\"580.159.04\", "
	  "device=\"nvidiactl\") = 0 ioctl" },
	{ "cards", TRACE_DEVICE_CTL, 0, 0xc90046c8, 0, "0", "0", "", "580",
	  "NV_ESC_CARD_INFO(cards=32, device=\"nvidiactl\") = 0 ioctl" },
	{ "transfer", TRACE_DEVICE_CTL, 0, 0xc01046d3, 0, "4e 38 1000 0", "4e 38 1000 0",
	  "1 2 3 0 1000 0 10000 0 0 0 0 8 9 0", "580",
	  "NV_ESC_RM_MAP_MEMORY(xfer=true, hClient=0x1, hDevice=0x2, hMemory=0x3, offset=0x1000, "
	  "length=65536B, pLinearAddress=0x0, flags=0x8, fd=9, "
	  "device=\"nvidiactl\") = 0 65536B ioctl" },
	{ "transfer of a transfer", TRACE_DEVICE_CTL, 0, 0xc01046d3, 0, "d3 10 1000 0",
	  "d3 10 1000 0", "d3 10 1000 0", "580",
	  "NV_ESC_IOCTL_XFER_CMD(nr=211, size=16B, pointer=0x1000, device=\"nvidiactl\") = 0 "
	  "ioctl" },
	{ "of a number that is none", TRACE_DEVICE_CTL, 0, RM(0xfa, 8), -EINVAL, "0 0", "0 0", "",
	  "580", "ioctl(nr=250, argumentSize=8B, device=\"nvidiactl\") = -22 EINVAL failed ioctl" },
	{ "of another device", TRACE_DEVICE_MODESET, 0, 0xc0106d00, 0, "0 0", "0 0", "", "580",
	  "ioctl(command=0xc0106d00, device=\"nvidia-modeset\") = 0 ioctl" },
	{ "fbdev has the same magic", TRACE_DEVICE_OTHER, 0, 0x4600, 0, "0 0", "0 0", "", "580",
	  "ioctl(command=0x4600) = 0 ioctl" },
	{ "uvm, initialise", TRACE_DEVICE_UVM, 0, 0x30000001, 0, "0 0 0 0", "0 0 0 0", "", "580",
	  "UVM_INITIALIZE(flags=0x0, device=\"nvidia-uvm\") = 0 NV_OK uvm" },
	{ "uvm, register", TRACE_DEVICE_UVM, 0, 37, 0,
	  "33221100 77665544 bbaa9988 ffeeddcc 0 0 0 1 2 0",
	  "33221100 77665544 bbaa9988 ffeeddcc 0 0 0 1 2 0", "", "580",
	  "UVM_REGISTER_GPU(gpu_uuid=\"00112233-4455-6677-8899-aabbccddeeff\", hClient=0x1, "
	  "device=\"nvidia-uvm\") = 0 NV_OK uvm" },
	{ "uvm, range", TRACE_DEVICE_UVM, 0, 73, 0, "0 7f00 200000 0 0 0", "0 7f00 200000 0 68 0",
	  "", "580",
	  "UVM_CREATE_EXTERNAL_RANGE(base=0x7f0000000000, length=2097152B, device=\"nvidia-uvm\") "
	  "= 104 NV_ERR_UVM_ADDRESS_IN_USE failed 2097152B uvm" },
	{ "uvm, free", TRACE_DEVICE_UVM, 0, 34, 0, "0 7f00 0 0", "0 7f00 1f 0", "", "595",
	  "UVM_FREE(base=0x7f0000000000, device=\"nvidia-uvm\") = 31 NV_ERR_INVALID_ARGUMENT "
	  "failed uvm" },
	{ "uvm, free with a length", TRACE_DEVICE_UVM, 0, 34, 0, "0 7f00 200000 0 0 0",
	  "0 7f00 200000 0 0 0", "", "535",
	  "UVM_FREE(base=0x7f0000000000, device=\"nvidia-uvm\") = 0 uvm" },
	{ "uvm, migrate", TRACE_DEVICE_UVM, 0, 51, 0,
	  "0 7f00 1000 0 0 0 0 1 2 0 0 0 0 0 0 0 0 0 0 0",
	  "0 7f00 1000 0 0 0 0 1 2 0 0 0 0 0 0 0 0 0 0 0", "", "580",
	  "UVM_MIGRATE(base=0x7f0000000000, length=4096B, "
	  "destinationUuid=\"00000000-0000-0000-0000-000001000000\", flags=0x2, "
	  "device=\"nvidia-uvm\") = "
	  "0 NV_OK 4096B uvm" },
	{ "uvm, larger than what is captured", TRACE_DEVICE_UVM, 0, 33, 0, "0 7f00 1000 0 4 0 26*0",
	  "0 7f00 1000 0 4 0 26*0", "", "580",
	  "UVM_MAP_EXTERNAL_ALLOCATION(base=0x7f0000000000, length=4096B, offset=0x4, "
	  "device=\"nvidia-uvm\") = 0 4096B uvm" },
	{ "uvm tools", TRACE_DEVICE_UVM_TOOLS, 0, 76, 0, "0 7f00 80 0 1000 7f00 4*0 1 9 0 0",
	  "0 7f00 80 0 1000 7f00 4*0 1 9 0 0", "", "580",
	  "UVM_TOOLS_INIT_EVENT_TRACKER_V2(queueBuffer=0x7f0000000000, queueBufferSize=128B, "
	  "controlBuffer=0x7f0000001000, "
	  "processor=\"00000000-0000-0000-0000-000000000000\", allProcessors=true, uvmFd=9, "
	  "device=\"nvidia-uvm-tools\") = 0 NV_OK uvm" },
	{ "uvm, unknown", TRACE_DEVICE_UVM, 0, 999, -ENOTTY, "0", "0", "", "580",
	  "ioctl(command=0x3e7, device=\"nvidia-uvm\") = -25 ENOTTY failed uvm" },
};

/* Words of a vector become bytes; returns their number. */
static size_t parse_words(const char *text, uint8_t *bytes) {
	size_t n = 0;

	while (*text) {
		char *end;
		unsigned long word = strtoul(text, &end, 16), repeat = 1;

		if (*end == '*') {
			repeat = strtoul(text, NULL, 10);
			word = strtoul(end + 1, &end, 16);
		}
		for (; repeat; repeat--, n += 4)
			for (int i = 0; i < 4; i++)
				bytes[n + i] = (uint8_t)(word >> 8 * i);
		text = end + strspn(end, " ");
	}
	return n;
}

/* A record of a vector, on the heap. */
static struct trace_ioctl *make_record(const struct vector *vector) {
	const char *const texts[] = { vector->before, vector->after, vector->inner };
	struct trace_ioctl *record = calloc(1, sizeof(*record) + 3 * 256);
	uint16_t *sizes[] = { &record->n_before, &record->n_after, &record->n_inner };
	size_t offset = 0;

	record->record.type = TRACE_IOCTL;
	record->command = vector->command;
	record->result = vector->result;
	record->device = vector->device;
	record->minor = vector->minor;
	for (size_t i = 0; i < 3; i++) {
		*sizes[i] = (uint16_t)parse_words(texts[i], record->bytes + offset);
		assert_true(*sizes[i] <= 128);
		offset += (*sizes[i] + 7) & ~7;
	}
	record->record.size = (uint32_t)(sizeof(*record) + offset);
	return record;
}

static void print_value(FILE *out, const struct trace_value *value) {
	fprintf(out, "%s%s=", value->out ? ">" : "", value->name);
	switch (value->kind) {
	case VALUE_HEX:
		fprintf(out, "0x%" PRIx64, (uint64_t)value->number);
		break;
	case VALUE_NAME:
		if (value->text)
			fprintf(out, "%s", value->text);
		else
			fprintf(out, "%" PRId64, value->number);
		break;
	case VALUE_STRING:
		fprintf(out, "\"%s\"", value->text);
		break;
	case VALUE_BOOL:
		fprintf(out, "%s", value->number ? "true" : "false");
		break;
	default:
		fprintf(out, "%" PRId64 "%s", value->number, value->kind == VALUE_SIZE ? "B" : "");
	}
}

/* An item as a line. */
static char *print_item(const struct trace_item *item) {
	char *text;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	fprintf(out, "%s(", item->name);
	for (size_t i = 0; i < item->n_values; i++) {
		fprintf(out, "%s", i ? ", " : "");
		print_value(out, item->values + i);
	}
	fprintf(out, ")");
	if (item->has_result)
		fprintf(out, " = %" PRId64, item->result);
	if (item->result_name)
		fprintf(out, " %s", item->result_name);
	fprintf(out, "%s", item->failed ? " failed" : "");
	if (item->size)
		fprintf(out, " %" PRIu64 "B", item->size);
	fprintf(out, " %s", item->class);
	fclose(out);
	return text;
}

static void test_vectors(void **state) {
	for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
		struct trace_ioctl *record = make_record(vectors + i);
		struct trace_decoder decoder;
		struct trace_item item;
		char *line;

		decode(record, vectors[i].driver, &decoder, &item);
		line = print_item(&item);
		if (strcmp(line, vectors[i].expect) != 0)
			fail_msg("%s:\n  %s\nnot\n  %s", vectors[i].what, line, vectors[i].expect);
		assert_string_equal(item.base, item.name);
		free(line);
		free(record);
	}
}

/* Whatever a cut record still says is what the whole one says. */
static void assert_part(const struct trace_item *part, const struct trace_item *whole,
			const char *what) {
	for (size_t i = 0; i < part->n_values; i++) {
		const struct trace_value *value = part->values + i;
		bool found = false;

		for (size_t k = 0; k < whole->n_values; k++)
			/* what the return would have said may be missing: then the entry's is there
			 */
			found |= strcmp(whole->values[k].name, value->name) == 0 &&
				 (whole->values[k].number == value->number ||
				  whole->values[k].out != value->out) &&
				 (value->kind != VALUE_STRING ||
				  strcmp(whole->values[k].text, value->text) == 0);
		/* an XFER whose target is missing is shown as such, and so is an argument too short
		 * for its fields */
		if (!found && strcmp(part->name, whole->name) == 0)
			fail_msg("%s: %s is not in the whole", what, value->name);
	}
	if (part->size && part->size != whole->size)
		fail_msg("%s: size", what);
}

/* A record that ends earlier: its strings are then longer than what is there. */
static void cut_record(const struct trace_ioctl *record, const char *driver,
		       const struct trace_item *whole, const char *what) {
	for (uint32_t n = sizeof(*record); n <= record->record.size; n++) {
		struct trace_ioctl *cut = malloc(n);
		struct trace_decoder decoder;
		struct trace_item item;

		memcpy(cut, record, n);
		cut->record.size = n;
		decode(cut, driver, &decoder, &item);
		assert_part(&item, whole, what);
		free(cut);
	}
}

/* One of the strings shorter than it was; what is behind it stays. */
static void cut_string(struct trace_ioctl *record, unsigned which, const char *driver,
		       const struct trace_item *whole, const char *what) {
	uint16_t *const sizes[] = { &record->n_before, &record->n_after, &record->n_inner };
	size_t offset = 0, full = *sizes[which], padded = (full + 7) & ~(size_t)7;

	for (unsigned i = 0; i < which; i++)
		offset += ((size_t)*sizes[i] + 7) & ~(size_t)7;
	for (size_t n = 0; n < full; n++) {
		size_t kept = (n + 7) & ~(size_t)7, size = record->record.size - padded + kept;
		struct trace_ioctl *cut = calloc(1, size);
		struct trace_decoder decoder;
		struct trace_item item;

		*sizes[which] = (uint16_t)n;
		memcpy(cut, record, sizeof(*record) + offset + n);
		memcpy(cut->bytes + offset + kept, record->bytes + offset + padded,
		       record->record.size - sizeof(*record) - offset - padded);
		cut->record.size = (uint32_t)size;
		decode(cut, driver, &decoder, &item);
		assert_part(&item, whole, what);
		free(cut);
	}
	*sizes[which] = (uint16_t)full;
}

static void test_cut(void **state) {
	for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
		struct trace_ioctl *record = make_record(vectors + i);
		struct trace_decoder decoder;
		struct trace_item whole;

		decode(record, vectors[i].driver, &decoder, &whole);
		cut_record(record, vectors[i].driver, &whole, vectors[i].what);
		for (unsigned k = 0; k < 3; k++)
			cut_string(record, k, vectors[i].driver, &whole, vectors[i].what);
		free(record);
	}
}

/* A status that is further behind in the argument than what is captured of it. */
static void test_status(void **state) {
	const struct vector vector = {
		"", TRACE_DEVICE_UVM, 0, 33, 0, "0 7f00 1000 0 4 0 26*0", "0 7f00 1000 0 4 0 26*0",
		""
	};
	struct trace_ioctl *record = make_record(&vector);
	struct trace_decoder decoder;
	struct trace_item item;

	record->status = 0x51;
	decode(record, "580", &decoder, &item);
	assert_true(!item.failed && !item.result_name);
	record->record.flags = TRACE_IOCTL_STATUS;
	decode(record, "580", &decoder, &item);
	assert_true(item.failed && item.result == 0x51);
	assert_string_equal(item.result_name, "NV_ERR_NO_MEMORY");
	free(record);
}

/* Sizes that the record does not have room for, and a call that is not over. */
static void test_lies(void **state) {
	struct trace_ioctl *record = make_record(vectors);
	struct trace_decoder decoder;
	struct trace_item item;

	record->n_before = record->n_after = record->n_inner = UINT16_MAX;
	decode(record, "580", &decoder, &item);
	assert_null(item.result_name); /* the entry's bytes took all */
	record->record.flags = 1;
	decode(record, "580", &decoder, &item);
	assert_true(item.open && !item.failed && !item.result_name);
	free(record);
}

/* Every line of a table: what the decoder calls this number is a name that the table has for it. */
static unsigned check_table(const char *name,
			    void (*call)(uint32_t number, struct trace_item *item,
					 struct trace_decoder *decoder),
			    const char *value) {
	char path[4096], line[256], (*rows)[256] = calloc(4096, sizeof(*rows));
	unsigned n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", data_folder, name);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) && n < 4096) {
		line[strcspn(line, "\n")] = '\0';
		strcpy(rows[n++], line);
	}
	fclose(file);
	for (unsigned i = 0; i < n; i++) {
		struct trace_decoder decoder;
		struct trace_item item;
		const char *called = NULL;
		uint32_t number = (uint32_t)strtoul(rows[i], NULL, 0);
		bool found = false;

		call(number, &item, &decoder);
		for (size_t k = 0; k < item.n_values && value; k++)
			if (strcmp(item.values[k].name, value) == 0)
				called = item.values[k].text;
		called = value ? called : item.name;
		for (unsigned k = 0; k < n; k++)
			found |= called && (uint32_t)strtoul(rows[k], NULL, 0) == number &&
				 strcmp(strchr(rows[k], '\t') + 1, called) == 0;
		if (!found)
			fail_msg("%s: %s is called %s", name, rows[i], called ? called : "nothing");
	}
	free(rows);
	return n;
}

static void decode_words(const struct vector *vector, struct trace_item *item,
			 struct trace_decoder *decoder) {
	struct trace_ioctl *record = make_record(vector);

	decode(record, "595.45.04", decoder, item);
	free(record);
}

static void call_control(uint32_t number, struct trace_item *item, struct trace_decoder *decoder) {
	char words[64];

	snprintf(words, sizeof(words), "1 2 %x 0 0 0 0 0", number);
	decode_words(&(struct vector){ "", TRACE_DEVICE_CTL, 0, 0xc020462a, 0, words, words, "" },
		     item, decoder);
}

static void call_alloc(uint32_t number, struct trace_item *item, struct trace_decoder *decoder) {
	char words[64];

	snprintf(words, sizeof(words), "1 2 3 %x 0 0 0 0 0 0 0 0", number);
	decode_words(&(struct vector){ "", TRACE_DEVICE_CTL, 0, 0xc030462b, 0, words, words, "" },
		     item, decoder);
}

static void call_uvm(uint32_t number, struct trace_item *item, struct trace_decoder *decoder) {
	decode_words(&(struct vector){ "", TRACE_DEVICE_UVM, 0, number, 0, "0", "0", "" }, item,
		     decoder);
}

static void call_control_status(uint32_t number, struct trace_item *item,
				struct trace_decoder *decoder) {
	char words[64];

	snprintf(words, sizeof(words), "1 2 3 0 0 0 0 %x", number);
	decode_words(&(struct vector){ "", TRACE_DEVICE_CTL, 0, 0xc020462a, 0, words, words, "" },
		     item, decoder);
	item->name = item->result_name;
}

static void test_names(void **state) {
	assert_int_equal(check_table("rm_ctrl_cmds.tsv", call_control, "cmd"), 1483);
	assert_int_equal(check_table("rm_ctrl_root.tsv", call_control, "cmd"), 26);
	assert_int_equal(check_table("rm_classes.tsv", call_alloc, "hClass"), 236);
	assert_int_equal(check_table("uvm_ioctls.tsv", call_uvm, NULL), 70);
	assert_true(check_table("nv_status.tsv", call_control_status, NULL) > 0x80);
}

/* Every ioctl of HOST.md 2.3, with the command that the 595 driver has for it. */
static void test_ioctl_numbers(void **state) {
	static const struct {
		uint32_t command;
		const char *name;
	} known[] = {
		{ 0xc0384627, "NV_ESC_RM_ALLOC_MEMORY" },
		{ 0xc0144628, "NV_ESC_RM_ALLOC_OBJECT" },
		{ 0xc0104629, "NV_ESC_RM_FREE" },
		{ 0xc020462a, "NV_ESC_RM_CONTROL" },
		{ 0xc030462b, "NV_ESC_RM_ALLOC" },
		{ 0xc020462b, "NV_ESC_RM_ALLOC" },
		{ 0xc028462b, "NV_ESC_RM_ALLOC" },
		{ 0xc01c4634, "NV_ESC_RM_DUP_OBJECT" },
		{ 0xc0184635, "NV_ESC_RM_SHARE" },
		{ 0xc0204639, "NV_ESC_RM_I2C_ACCESS" },
		{ 0xc0384641, "NV_ESC_RM_IDLE_CHANNELS" },
		{ 0xc0b8464a, "NV_ESC_RM_VID_HEAP_CONTROL" },
		{ 0xc048464d, "NV_ESC_RM_ACCESS_REGISTRY" },
		{ 0xc038464e, "NV_ESC_RM_MAP_MEMORY" },
		{ 0xc020464f, "NV_ESC_RM_UNMAP_MEMORY" },
		{ 0xc0104652, "NV_ESC_RM_GET_EVENT_DATA" },
		{ 0xc0384654, "NV_ESC_RM_ALLOC_CONTEXT_DMA2" },
		{ 0xc0404657, "NV_ESC_RM_MAP_MEMORY_DMA" },
		{ 0xc0384657, "NV_ESC_RM_MAP_MEMORY_DMA" },
		{ 0xc0304658, "NV_ESC_RM_UNMAP_MEMORY_DMA" },
		{ 0xc0284658, "NV_ESC_RM_UNMAP_MEMORY_DMA" },
		{ 0xc0104659, "NV_ESC_RM_BIND_CONTEXT_DMA" },
		{ 0xc028465e, "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO" },
		{ RM(0x5f, 15412), "NV_ESC_RM_LOCKLESS_DIAGNOSTIC" },
		{ RM(0x5c, 8), "NV_ESC_RM_EXPORT_OBJECT_TO_FD" },
		{ RM(0x5d, 8), "NV_ESC_RM_IMPORT_OBJECT_FROM_FD" },
		{ RM(0x56, 8), "NV_ESC_RM_ADD_VBLANK_CALLBACK" },
		{ 0xc90046c8, "NV_ESC_CARD_INFO" },
		{ 0xc00446c9, "NV_ESC_REGISTER_FD" },
		{ 0xc01046ce, "NV_ESC_ALLOC_OS_EVENT" },
		{ 0xc01046cf, "NV_ESC_FREE_OS_EVENT" },
		{ 0xc00c46d1, "NV_ESC_STATUS_CODE" },
		{ 0xc04846d2, "NV_ESC_CHECK_VERSION_STR" },
		{ 0xc01046d3, "NV_ESC_IOCTL_XFER_CMD" },
		{ 0xc00446d4, "NV_ESC_ATTACH_GPUS_TO_FD" },
		{ 0xc00846d5, "NV_ESC_QUERY_DEVICE_INTR" },
		{ 0xc00846d6, "NV_ESC_SYS_PARAMS" },
		{ 0xc23046d7, "NV_ESC_NUMA_INFO" },
		{ 0xc00446d8, "NV_ESC_SET_NUMA_STATUS" },
		{ 0xca3046d9, "NV_ESC_EXPORT_TO_DMABUF_FD" },
		{ 0xca2846d9, "NV_ESC_EXPORT_TO_DMABUF_FD" },
		{ 0xc00846da, "NV_ESC_WAIT_OPEN_COMPLETE" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		struct trace_decoder decoder;
		struct trace_item item;

		decode_words(&(struct vector){ "", TRACE_DEVICE_CTL, 0, known[i].command, 0,
					       "d3 31*1", "32*0", "" },
			     &item, &decoder);
		assert_string_equal(item.name, known[i].name);
		/* the size is known, too: a layout was found */
		assert_true(item.n_values == 0 || strcmp(item.values[0].name, "nr") != 0 ||
			    known[i].command == 0xc01046d3);
	}
}

int main(int argc, char **argv) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors), cmocka_unit_test(test_cut),
		cmocka_unit_test(test_lies),    cmocka_unit_test(test_status),
		cmocka_unit_test(test_names),   cmocka_unit_test(test_ioctl_numbers),
	};

	data_folder = argc > 1 ? argv[1] : "data";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
