/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. Unloads what is unloaded already, what was never loaded, and what
 * another call unloads; loads what is no image. Or, with an argument, unloads in a signal handler,
 * while another module is loaded perhaps.
 */

#include <signal.h>
#include <unistd.h>

#include "s.h"

static struct s_loaded first;
static volatile sig_atomic_t unloaded = -1;

static void on_alarm(int number) {
	unloaded = driver.module_unload(first.module);
}

static void in_handler(void) {
	struct s_loaded second;

	first = s_load(S_MODULE);
	printf("%d\n", s_launch(&first));
	signal(SIGALRM, on_alarm);
	ualarm(300000, 0);
	second = s_load(S_MODULE);
	while (unloaded < 0)
		usleep(1000);
	printf("unloaded: %d\n", (int)unloaded);
	for (int i = 0; i < 2; i++)
		printf("%d\n", s_launch(&second));
}

int main(int argc, char **argv) {
	static const char garbage[4096] = "this is no PTX";
	struct s_loaded library, module;
	int foreign = 0;

	driver_start(false);
	if (argc > 1) {
		in_handler();
		return 0;
	}
	library = s_load(S_LIBRARY);
	module = s_load(S_MODULE);
	printf("%d %d\n", s_launch(&library), s_launch(&module));
	printf("library: %d", driver.library_unload(library.library));
	printf(" %d\n", driver.library_unload(library.library));
	printf("module: %d", driver.module_unload(module.module));
	printf(" %d\n", driver.module_unload(module.module));
	printf("foreign: %d %d %d %d\n", driver.library_unload((CUlibrary)&foreign),
	       driver.module_unload((CUmodule)&foreign), driver.library_unload(NULL),
	       driver.module_unload(NULL));
	printf("garbage: %d %d %d\n", driver.module_load_data(&module.module, garbage),
	       driver.library_load_data(&library.library, garbage, NULL, NULL, 0, NULL, NULL, 0),
	       driver.module_load_data(&module.module, NULL));
	printf("%d\n", s_once(S_LIBRARY));
	return 0;
}
