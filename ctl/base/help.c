/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Prints the help texts of all commands, broken at the width of a terminal; if standard output is
 * no terminal, they are printed as they are written.
 *
 * Lines are joined into blocks and broken again. A block is a paragraph, or an option with its
 * description. A line belongs to the description above it if it begins in the same column; a line
 * without blanks in front belongs to the paragraph above it.
 */

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/base/ctl.h"

#define WIDTH_MIN 40

struct block {
	size_t hang; /* where its other lines begin */
	size_t column; /* that was printed to; 0: no block is open */
	bool paragraph;
};

/* Columns of the terminal; 0: it is none, or one without a width. */
static size_t terminal_width(void) {
	struct winsize size = {};

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col)
		return 0;
	return size.ws_col > WIDTH_MIN ? size.ws_col : WIDTH_MIN;
}

static void end_block(struct block *block) {
	if (block->column)
		putchar('\n');
	*block = (struct block){};
}

/* Prints the words of a line of help; with a blank before them, if they go on with what is there.
 */
static void print_words(struct block *block, const char *text, size_t length, bool go_on,
			size_t width) {
	const char *end = text + length;

	for (size_t n; text < end; text += strspn(text, " ")) {
		n = strcspn(text, " \n");
		if (block->column + go_on + n > width && block->column > block->hang) {
			printf("\n%*s", (int)block->hang, "");
			block->column = block->hang;
			go_on = false;
		}
		printf("%s%.*s", go_on ? " " : "", (int)n, text);
		block->column += go_on + n;
		go_on = true;
		text += n;
	}
}

/* Where the description of an option begins; 0: the line has none. */
static size_t find_description(const char *line, size_t length) {
	size_t at = strspn(line, " ");

	for (; at + 2 < length; at++)
		if (!strncmp(line + at, "  ", 2))
			return at + strspn(line + at, " ");
	return 0;
}

static void print_line(struct block *block, const char *line, size_t length, size_t width) {
	const size_t indent = strspn(line, " "), description = find_description(line, length);

	if (block->column && !description && (block->paragraph ? !indent : indent == block->hang)) {
		print_words(block, line + indent, length - indent, true, width);
		return;
	}
	end_block(block);
	block->paragraph = !indent && strncmp(line, "Usage:", strlen("Usage:")) != 0;
	block->hang = block->paragraph ? 0 : description ?: indent + 8;
	if (block->hang > width / 2)
		block->hang = width / 2;
	printf("%.*s", (int)(description ?: indent), line);
	block->column = description ?: indent;
	print_words(block, line + block->column, length - block->column, false, width);
}

void ctl_print_help(const char *help) {
	const size_t width = terminal_width();
	struct block block = {};

	if (!width) {
		fputs(help, stdout);
		return;
	}
	for (size_t n; *help; help += n + 1) {
		n = strcspn(help, "\n");
		if (n) {
			print_line(&block, help, n, width);
		} else {
			end_block(&block);
			putchar('\n');
		}
	}
	end_block(&block);
}
