/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Runs what a library (s-plugin.c) has registered: one that is
 * linked with this program (-DS_LINKED), or s-host LIBRARY lazy|now|global. Nothing is looked up by
 * dlsym().
 */

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void s_registered(int (*run)(void));
static int (*registered)(void);

#ifdef S_LINKED
extern const int s_plugin, *s_host_plugin;
const int *s_host_plugin = &s_plugin;
#endif

void s_registered(int (*run)(void)) {
	registered = run;
}

int main(int argc, char **argv) {
	int mode = argc > 2 && !strcmp(argv[2], "lazy") ? RTLD_LAZY : RTLD_NOW;

	if (argc > 2 && !strcmp(argv[2], "global"))
		mode |= RTLD_GLOBAL;
	if (argc > 1 && !dlopen(argv[1], mode)) {
		printf("%s\n", dlerror());
		return 1;
	}
	if (!registered)
		return 1;
	printf("run: %d\n", registered());
	return 0;
}
