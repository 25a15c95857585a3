/* SPDX-License-Identifier: Apache-2.0 */

#include "fault.h"

#include <stdarg.h>
#include <stdio.h>

#include "translate.h"

static void fault_format(struct fault *fault, int used, const char *format, va_list args)
{
	if (used < 0 || (size_t)used >= sizeof(fault->text))
		return;
	vsnprintf(fault->text + used, sizeof(fault->text) - (size_t)used, format, args);
}

int fault_at(struct fault *fault, size_t pc, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fault_format(fault,
		     snprintf(fault->text, sizeof(fault->text),
			      "program %.128s, instruction %zu: ", fault->program, pc),
		     format, args);
	va_end(args);
	return TRANSLATE_E_PROGRAM;
}

int fault_whole(struct fault *fault, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fault_format(fault,
		     snprintf(fault->text, sizeof(fault->text), "program %.128s: ", fault->program),
		     format, args);
	va_end(args);
	return TRANSLATE_E_PROGRAM;
}
