/* SPDX-License-Identifier: Apache-2.0 */

/*
 * printf() of device code in the CPU driver (sim-print.h). Each conversion is taken apart, checked,
 * and handed to the C library with its one argument.
 */

#include <stdio.h>

#include "sim-print.h"

/* May a thread read these bytes? */
static bool readable(const struct sim_thread *t, uint64_t address, size_t size) {
	uint64_t stack = (uint64_t)(uintptr_t)t->context->stack,
		 end = (uint64_t)(uintptr_t)t->context->end;

	if (address >= stack && address < end)
		return size <= end - address;
	return sim_memory_holds(address, size);
}

/* Copies a string; false if it is nobody's. What does not fit is cut off. */
static bool copy_string(const struct sim_thread *t, uint64_t address, char *out, size_t size) {
	for (size_t n = 0; n + 1 < size; n++) {
		if (!readable(t, address + n, 1))
			return false;
		out[n] = *(const char *)(uintptr_t)(address + n);
		if (!out[n])
			return true;
	}
	out[size - 1] = '\0';
	return true;
}

static bool take(const struct sim_thread *t, uint64_t *arguments, size_t size, uint64_t *value) {
	*arguments = (*arguments + size - 1) & ~(uint64_t)(size - 1);
	*value = 0;
	if (!readable(t, *arguments, size))
		return false;
	memcpy(value, (const void *)(uintptr_t)*arguments, size);
	*arguments += size;
	return true;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
/* One conversion: "%-5.2lld" in specification, already checked. Returns false if an address is
 * nobody's. */
static bool print_one(const struct sim_thread *t, const char *specification, bool is_long,
		      uint64_t *arguments) {
	char conversion = specification[strlen(specification) - 1];
	char text[1024];
	uint64_t value;

	switch (conversion) {
	case 'd':
	case 'i':
	case 'u':
	case 'x':
	case 'X':
	case 'o':
	case 'c':
		if (!take(t, arguments, is_long ? 8 : 4, &value))
			return false;
		if (is_long)
			printf(specification, value);
		else
			printf(specification, (uint32_t)value);
		return true;
	case 'e':
	case 'E':
	case 'f':
	case 'F':
	case 'g':
	case 'G':
	case 'a':
	case 'A':
		if (!take(t, arguments, 8, &value))
			return false;
		printf(specification, sim_f64(value));
		return true;
	case 'p':
		if (!take(t, arguments, 8, &value))
			return false;
		printf(specification, (void *)(uintptr_t)value);
		return true;
	case 's':
		if (!take(t, arguments, 8, &value) || !copy_string(t, value, text, sizeof(text)))
			return false;
		printf(specification, text);
		return true;
	}
	return true;
}
#pragma GCC diagnostic pop

static int print(struct sim_thread *t, uint64_t format, uint64_t arguments) {
	char text[4096], specification[32];
	int count = 0;

	if (!copy_string(t, format, text, sizeof(text)))
		return -1;
	for (const char *p = text; *p; p++) {
		size_t n = 0;
		bool is_long = false;

		if (*p != '%' || p[1] == '%') {
			putchar(*p);
			p += *p == '%';
			continue;
		}
		specification[n++] = *p++;
		while (*p && strchr("-+ #0123456789.hljzt", *p) && n < sizeof(specification) - 4) {
			if (strchr("ljzt", *p))
				is_long = true;
			else if (*p != 'h')
				specification[n++] = *p;
			p++;
		}
		if (!*p || !strchr("diuxXocspeEfFgGaA", *p))
			break; /* '*' and what nobody knows: the rest is not printed */
		if (is_long && strchr("diuxXo", *p)) {
			specification[n++] = 'l';
			specification[n++] = 'l';
		}
		specification[n++] = *p;
		specification[n] = '\0';
		if (!print_one(t, specification, is_long && strchr("diuxXo", *p), &arguments))
			return -1;
		count++;
	}
	fflush(stdout);
	return count;
}

int sim_print(struct sim_thread *t, uint64_t format, uint64_t arguments) {
	int count;

	flockfile(stdout); /* blocks may run at once */
	count = print(t, format, arguments);
	funlockfile(stdout);
	return count;
}
