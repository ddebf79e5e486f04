// SPDX-License-Identifier: GPL-2.0
/* Results in the Test Anything Protocol: a line for each test, and the plan at the end. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "selftest.h"

static unsigned int tests, failed_tests, failures;
static char skipped[128];

void tap_run(const char *name, void (*test)(void))
{
	failures = 0;
	skipped[0] = '\0';
	test();
	tests++;
	if (failures)
		failed_tests++;
	printf("%sok %u - %s%s%s\n", failures ? "not " : "", tests, name, skipped[0] ? " # SKIP " : "", skipped);
	fflush(stdout);
}

static void has_no_ports(void)
{
	tap_skip("this card opens no ports");
}

void tap_run_with_port(const char *name, void (*test)(void))
{
	tap_run(name, nic_has(NICLAB_FEATURE_RINGS) ? has_no_ports : test);
}

void tap_skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(skipped, sizeof(skipped), format, arguments);
	va_end(arguments);
}

void tap_fail(const char *file, int line, const char *format, ...)
{
	va_list arguments;

	failures++;
	va_start(arguments, format);
	printf("# %s:%d: ", file, line);
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
}

int tap_finish(void)
{
	printf("1..%u\n# %u passed, %u failed\n", tests, tests - failed_tests, failed_tests);
	return failed_tests ? 1 : 0;
}

const char *errno_name(int error)
{
	const char *name = error ? strerrorname_np(error) : "success";

	return name ? name : "an unknown error";
}
