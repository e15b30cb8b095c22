/*
 * A program that is not linked with libibverbs, but opens it and asks for versions, as NCCL does. Exits with 0 when it
 * has listed and opened a device and queried it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;

static void *find(const char *name, const char *version)
{
	void *symbol = dlvsym(library, name, version);

	if (!symbol) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return symbol;
}

int main(void)
{
	library = dlopen("libibverbs.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}

	struct ibv_device **(*get_device_list)(int *) = find("ibv_get_device_list", "IBVERBS_1.1");
	void (*free_device_list)(struct ibv_device **) = find("ibv_free_device_list", "IBVERBS_1.1");
	const char *(*get_device_name)(struct ibv_device *) = find("ibv_get_device_name", "IBVERBS_1.1");
	struct ibv_context *(*open_device)(struct ibv_device *) = find("ibv_open_device", "IBVERBS_1.1");
	int (*close_device)(struct ibv_context *) = find("ibv_close_device", "IBVERBS_1.1");
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *) =
		find("ibv_query_device", "IBVERBS_1.1");
	struct ibv_device **(*old_list)(int *) = find("ibv_get_device_list", "IBVERBS_1.0");
	int count = 0;
	struct ibv_device **list = get_device_list(&count);

	if (!list || count < 1) {
		fprintf(stderr, "no devices\n");
		return 1;
	}
	if ((void *)old_list == (void *)get_device_list) {
		fprintf(stderr, "the versions are not distinct\n");
		return 1;
	}
	for (int i = 0; i < count; i++) {
		struct ibv_device_attr attributes;
		struct ibv_context *context = open_device(list[i]);

		if (!context || query_device(context, &attributes)) {
			fprintf(stderr, "cannot query %s\n", get_device_name(list[i]));
			return 1;
		}
		printf("%s: %d queue pairs\n", get_device_name(list[i]), attributes.max_qp);
		if (close_device(context)) {
			fprintf(stderr, "cannot close\n");
			return 1;
		}
	}
	free_device_list(list);
	dlclose(library);
	return 0;
}
