/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A part of the fake daemon for tests of gpuprobectl. The fake daemon's cache: two entries until
 * they are cleared, then it has none on the disk any more.
 */

#include "fake-daemon.h"
#include "lib/varlink/varlink-server.h"

static bool cleared;

static int unavailable(struct varlink_call *call) {
	return varlink_call_error(call, "io.gpuprobe.control.Unavailable",
				  json_tokener_parse("{\"reason\":\"this daemon has no cache\"}"));
}

int fake_cache_status(struct varlink_call *call, json_object *parameters, void *userdata) {
	return varlink_call_reply(
		call,
		json_tokener_parse(cleared ? "{\"enabled\":false,\"folder\":\"\",\"limit\":0,"
					     "\"bytes\":0,\"entries\":0,\"hits\":0,\"misses\":0,"
					     "\"invalid\":0,\"stores\":0,\"skipped\":0,"
					     "\"failures\":0,\"evicted\":0}"
					   : "{\"enabled\":true,\"folder\":\"/var/"
					     "\\u001bcache\",\"limit\":1073741824,\"bytes\":"
					     "1572864,\"entries\":2,"
					     "\"hits\":10,\"misses\":11,\"invalid\":12,\"stores\":"
					     "13,\"skipped\":14,\"failures\":15,\"evicted\":16}"));
}

int fake_list_cache(struct varlink_call *call, json_object *parameters, void *userdata) {
	if (cleared)
		return unavailable(call);
	return varlink_call_reply(
		call,
		json_tokener_parse("{\"entries\":[{\"key\":"
				   "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abc"
				   "def\",\"job\":\"image\","
				   "\"name\":\"f(\\u001bint)\",\"uid\":1000,\"bytes\":8192,"
				   "\"used\":1700000000000000},"
				   "{\"key\":\"fedcba9876543210\",\"job\":\"link\",\"name\":\"\","
				   "\"uid\":0,\"bytes\":4096,\"used\":1600000000000000}],"
				   "\"total\":5,\"bytes\":99999}"));
}

int fake_clear_cache(struct varlink_call *call, json_object *parameters, void *userdata) {
	if (cleared)
		return unavailable(call);
	cleared = true;
	return varlink_call_reply(call, json_tokener_parse("{\"removed\":2,\"bytes\":500}"));
}
