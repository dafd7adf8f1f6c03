/* Reads the command line of the workload kernel, the words of payload.rs: report=MS, buckets=1 and
 * VCPU:KIND[,WORK_US,SLEEP_US]; words that it does not know are passed over. */
#include "guest.h"

struct run run;

static int begins(const char **text, const char *with)
{
	const char *t = *text;
	while (*with)
		if (*t++ != *with++)
			return 0;
	*text = t;
	return 1;
}

static u32 number(const char **text)
{
	u32 value = 0;
	while (**text >= '0' && **text <= '9')
		value = value * 10 + (u32)(*(*text)++ - '0');
	return value;
}

static void parse_orders(const char *word)
{
	u32 vcpu = number(&word);
	struct orders *o = &run.orders[vcpu % MAX_VCPUS];
	if (*word++ != ':')
		return;
	if (begins(&word, "burn")) {
		o->kind = BURN;
	} else if (begins(&word, "duty,")) {
		o->kind = DUTY;
		o->work_us = number(&word);
		word++;
		o->sleep_us = number(&word);
	}
}

void parse_line(const char *line)
{
	while (*line) {
		const char *word = line;
		if (begins(&word, "report="))
			run.report_ms = number(&word);
		else if (begins(&word, "buckets="))
			run.buckets = number(&word);
		else
			parse_orders(word);
		while (*line && *line != ' ')
			line++;
		while (*line == ' ')
			line++;
	}
}
