/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The list of CUDA processes that talk to the daemon (process.h).
 *
 * pid and start time name a process; an exec keeps both, and closes the connections, but their end
 * may be seen after the new program's greeting: so the executable is part of the name, and both are
 * there for a moment.
 */

#include "process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/gpuprobed/registry/registry.h"
#include "daemon/gpuprobed/wire/process-facts.h"
#include "process-watch.h"

void process_table_init(struct process_table *table, uv_loop_t *loop,
			void (*gone)(struct process *process, void *userdata), void *userdata) {
	*table = (struct process_table){ .loop = loop, .gone = gone, .userdata = userdata };
	LIST_INIT(&table->list);
}

struct process *process_table_adopt(struct process_table *table, const struct process_facts *facts,
				    uid_t uid, uint64_t number) {
	struct process *process = calloc(1, sizeof(*process));

	if (!process)
		return NULL;
	LIST_INIT(&process->modules);
	process->facts = *facts;
	process->number = number;
	process->uid = uid;
	LIST_INSERT_HEAD(&table->list, process, link);
	table->n++;
	table->total++;
	return process;
}

int process_table_connect(struct process_table *table, struct shim_connection *connection,
			  struct process **processp) {
	struct process_facts facts;
	struct process *process;
	int r;

	r = process_facts_read(&facts, connection->pid, connection->pidfd);
	if (r < 0)
		return r;
	LIST_FOREACH(process, &table->list, link)
		if (process_facts_same(&process->facts, &facts) && process->uid == connection->uid)
			break;
	if (!process)
		process = process_table_adopt(table, &facts, connection->uid, ++table->last_number);
	if (!process)
		return -ENOMEM;
	if (process->n_connections == PROCESS_CONNECTIONS_MAX)
		return PROCESS_E_LIMIT;
	if (!process->account)
		process->account = account_ref(connection->account);
	process_unwatch(process);
	process->facts = facts;
	process->connections[process->n_connections++] = connection;
	*processp = process;
	return 0;
}

void process_table_unwatch(struct process_table *table) {
	struct process *process, *next;

	for (process = LIST_FIRST(&table->list); process; process = next) {
		next = LIST_NEXT(process, link);
		if (!process->n_connections)
			process_free(table, process);
	}
}

bool process_disconnect(struct process *process, struct shim_connection *connection) {
	for (unsigned int i = 0; i < process->n_connections; i++)
		if (process->connections[i] == connection)
			process->connections[i] = process->connections[--process->n_connections];
	return process->n_connections == 0;
}

struct process *process_free(struct process_table *table, struct process *process) {
	while (!LIST_EMPTY(&process->modules))
		process_module_free(process, LIST_FIRST(&process->modules));
	process_unwatch(process);
	image_result_unref(process->plan);
	image_result_unref(process->refused);
	account_unref(process->account);
	LIST_REMOVE(process, link);
	table->n--;
	free(process);
	return NULL;
}

int process_module_new(struct process_table *table, struct process *process,
		       struct image_result *result, struct module **modulep) {
	int r = process_module_adopt(process, table->last_module + 1, result, modulep);

	table->last_module += r == 0;
	return r;
}

int process_module_adopt(struct process *process, uint64_t id, struct image_result *result,
			 struct module **modulep) {
	struct module *module;

	if (process->n_modules >= PROCESS_MODULES_MAX ||
	    (result->plan && process->n_plans >= PROCESS_PLANS_MAX))
		return PROCESS_E_LIMIT;
	if (account_charge_module(process->account))
		return PROCESS_E_QUOTA;
	module = calloc(1, sizeof(*module));
	if (!module) {
		account_discharge_module(process->account);
		return -ENOMEM;
	}
	module->id = id;
	module->result = image_result_ref(result);
	LIST_INSERT_HEAD(&process->modules, module, link);
	process->n_modules++;
	process->n_plans += result->plan;
	*modulep = module;
	return 0;
}

void process_module_refusal(char reason[static 128], const struct process *process,
			    const struct image_result *result, int error) {
	if (error == PROCESS_E_QUOTA)
		snprintf(reason, 128,
			 "quota: the processes of uid %u have %d probed modules, or those of all "
			 "users %d: no more",
			 (unsigned)process->uid, ACCOUNT_MODULES_MAX, ACCOUNT_MODULES_ALL_MAX);
	else
		snprintf(reason, 128, "this process has %d %s: no more",
			 result->plan ? PROCESS_PLANS_MAX : PROCESS_MODULES_MAX,
			 result->plan ? "plans" : "probed modules");
}

struct module *process_module(const struct process *process, uint64_t id) {
	struct module *module;

	LIST_FOREACH(module, &process->modules, link)
		if (module->id == id)
			return module;
	return NULL;
}

void process_module_free(struct process *process, struct module *module) {
	LIST_REMOVE(module, link);
	process->n_modules--;
	process->n_plans -= module->result->plan;
	account_discharge_module(process->account);
	image_result_unref(module->result);
	free(module);
}

bool process_may_use(const struct process *process, uint64_t map) {
	const struct module *module;

	LIST_FOREACH(module, &process->modules, link)
		if (image_result_uses(module->result, map))
			return true;
	return false;
}

struct shim_connection *process_mirror(const struct process *process) {
	for (unsigned int i = 0; i < process->n_connections; i++)
		if (process->connections[i]->state == SHIM_MIRROR)
			return process->connections[i];
	return NULL;
}

void process_table_count(const struct process_table *table, const struct registry *registry) {
	const struct process *process;
	struct attachment *attachment;
	const struct module *module;

	TAILQ_FOREACH(attachment, &registry->attachments, link) {
		attachment->n_modules = attachment->n_processes = attachment->n_recompiled = 0;
		attachment->counted = NULL;
	}
	LIST_FOREACH(process, &table->list, link)
		LIST_FOREACH(module, &process->modules, link)
			for (size_t i = 0; module->armed && i < module->result->n_attachments;
			     i++) {
				attachment = registry_attachment(registry,
								 module->result->attachments[i]);
				if (!attachment)
					continue;
				attachment->n_modules++;
				attachment->n_recompiled +=
					!module->result->plan && !module->result->machine_code;
				attachment->n_processes += attachment->counted != process;
				attachment->counted = process;
			}
}
