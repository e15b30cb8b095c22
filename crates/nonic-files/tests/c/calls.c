/* Asks for the same files by every function that takes a path. Argument: the name of a device, that of its file in
   /dev/infiniband and what realpath answers for the device. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(truth) \
    do { \
        errno = 0; \
        if (!(truth)) { \
            fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #truth, strerror(errno)); \
            exit(1); \
        } \
    } while (0)

/* What programs call that were built long ago. Newer headers do not declare them. */
extern int old_xstat(int, const char *, struct stat *);
extern int old_lxstat(int, const char *, struct stat *);
extern int old_fxstatat(int, int, const char *, struct stat *, int);
__asm__(".symver old_xstat,__xstat@GLIBC_2.2.5");
__asm__(".symver old_lxstat,__lxstat@GLIBC_2.2.5");
__asm__(".symver old_fxstatat,__fxstatat@GLIBC_2.4");

extern int __open_2(const char *, int);
extern int __openat_2(int, const char *, int);
extern char *__realpath_chk(const char *, char *, size_t);
extern ssize_t __readlink_chk(const char *, char *, size_t, size_t);

static char file[PATH_MAX], folder[PATH_MAX], node[PATH_MAX], link_[PATH_MAX];

static int reads(int fd)
{
    char text[64];
    ssize_t length = read(fd, text, sizeof text);
    close(fd);
    return length == 20 && text[4] == ':' && text[19] == '\n';
}

static int reads_stream(FILE *stream)
{
    int fd = stream ? dup(fileno(stream)) : -1;
    if (stream)
        fclose(stream);
    return reads(fd);
}

static int has_entries(DIR *directory)
{
    int found = 0;
    if (!directory)
        return 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        found += !strcmp(entry->d_name, "node_guid") || !strcmp(entry->d_name, "ports");
    closedir(directory);
    return found == 2;
}

static void *cancelled(void *unused)
{
    (void)unused;
    for (;;)
        close(open(file, O_RDONLY));
    return NULL;
}

int main(int count, char **arguments)
{
    (void)count;
    const char *device = arguments[1], *real = arguments[3];
    char text[PATH_MAX];
    struct stat found;
    struct statx more;
    snprintf(file, sizeof file, "/sys/class/infiniband/%s/node_guid", device);
    snprintf(folder, sizeof folder, "/sys/class/infiniband/%s", device);
    snprintf(link_, sizeof link_, "/sys/class/infiniband/%s/device", device);
    snprintf(node, sizeof node, "/dev/infiniband/%s", arguments[2]);

    EXPECT(!stat(file, &found) && S_ISREG(found.st_mode));
    EXPECT(!old_xstat(1, file, &found) && S_ISREG(found.st_mode));
    EXPECT(!lstat(folder, &found) && S_ISLNK(found.st_mode));
    EXPECT(!old_lxstat(1, folder, &found) && S_ISLNK(found.st_mode));
    EXPECT(!fstatat(AT_FDCWD, folder, &found, 0) && S_ISDIR(found.st_mode));
    EXPECT(!old_fxstatat(1, AT_FDCWD, folder, &found, 0) && S_ISDIR(found.st_mode));
    EXPECT(!statx(AT_FDCWD, file, 0, STATX_BASIC_STATS, &more) && S_ISREG(more.stx_mode));
    EXPECT(!access(file, R_OK) && !eaccess(file, R_OK) && !faccessat(AT_FDCWD, file, R_OK, 0));
    EXPECT(access(folder, F_OK) == 0 && access("/sys/class/infiniband/none", F_OK) < 0 && errno == ENOENT);

    /* A device, not a link to one. */
    EXPECT(!stat(node, &found) && S_ISCHR(found.st_mode));
    EXPECT(!lstat(node, &found) && S_ISCHR(found.st_mode));
    EXPECT(!old_lxstat(1, node, &found) && S_ISCHR(found.st_mode));
    EXPECT(!fstatat(AT_FDCWD, node, &found, AT_SYMLINK_NOFOLLOW) && S_ISCHR(found.st_mode));
    EXPECT(!access(node, R_OK | W_OK));
    EXPECT(readlink(node, text, sizeof text) < 0 && errno == EINVAL);
    EXPECT(realpath(node, text) && !strcmp(text, node));

    EXPECT(reads(open(file, O_RDONLY)));
    EXPECT(reads(open(file, O_RDONLY | O_CLOEXEC, 0)));
    EXPECT(reads(open64(file, O_RDONLY)));
    EXPECT(reads(__open_2(file, O_RDONLY)));
    EXPECT(reads(openat(AT_FDCWD, file, O_RDONLY)));
    EXPECT(reads(openat64(AT_FDCWD, file, O_RDONLY)));
    EXPECT(reads(__openat_2(AT_FDCWD, file, O_RDONLY)));
    EXPECT(reads_stream(fopen(file, "r")));
    EXPECT(reads_stream(fopen64(file, "re")));
    EXPECT(reads_stream(freopen(file, "r", fopen("/dev/null", "r"))));
    int directory = open(folder, O_RDONLY | O_DIRECTORY);
    EXPECT(reads(openat(directory, "node_guid", O_RDONLY)));
    close(directory);
    /* Without a mode that anybody gave, the mode of a new file is still the one that was given. */
    snprintf(text, sizeof text, "%s.new", arguments[0]);
    umask(0);
    EXPECT((directory = open(text, O_WRONLY | O_CREAT | O_EXCL, 0640)) >= 0);
    EXPECT(!fstat(directory, &found) && (found.st_mode & 07777) == 0640);
    close(directory);
    unlink(text);

    EXPECT(has_entries(opendir(folder)));
    struct dirent **entries;
    int several = scandir("/sys/class/infiniband", &entries, NULL, alphasort);
    EXPECT(several >= 3 && !strcmp(entries[0]->d_name, "."));
    glob_t all;
    EXPECT(!glob("/sys/class/infiniband/*/node_guid", 0, NULL, &all) && all.gl_pathc == (size_t)several - 2);
    EXPECT(!strncmp(all.gl_pathv[0], "/sys/class/infiniband/", 22));
    globfree(&all);

    ssize_t length = readlink(link_, text, sizeof text);
    EXPECT(length == 5 && !memcmp(text, "../..", 5));
    EXPECT(__readlink_chk(link_, text, sizeof text, sizeof text) == 5);
    EXPECT(readlinkat(AT_FDCWD, link_, text, sizeof text) == 5);
    EXPECT(realpath(link_, text) == text && !strcmp(text, real));
    char *allotted = realpath(link_, NULL);
    EXPECT(allotted && !strcmp(allotted, real));
    free(allotted);
    allotted = canonicalize_file_name(link_);
    EXPECT(allotted && !strcmp(allotted, real));
    free(allotted);
    EXPECT(__realpath_chk(link_, text, sizeof text) && !strcmp(text, real));
    char above[PATH_MAX + 16];
    snprintf(above, sizeof above, "%s/../..", folder);
    EXPECT(realpath(above, text) && !strcmp(text, real));
    EXPECT(!access(real, F_OK));
    EXPECT(!chdir(folder) && !access("node_guid", R_OK));
    EXPECT(getcwd(text, sizeof text) && !strncmp(text, real, strlen(real)));
    EXPECT(!chdir("/"));

    /* Everything else is the machine's. */
    EXPECT(!stat("/sys/class/infiniband/../../../etc/passwd", &found) && S_ISREG(found.st_mode));
    EXPECT(!access("/sys/class/net/lo", F_OK) && !access("/dev/null", R_OK));
    const char *volatile nothing = NULL;
    EXPECT(stat(nothing, &found) < 0 && errno == EFAULT);
    char long_path[2 * PATH_MAX];
    memset(long_path, 'x', sizeof long_path);
    memcpy(long_path, "/dev/infiniband/", 16);
    long_path[sizeof long_path - 1] = 0;
    EXPECT(access(long_path, F_OK) < 0 && errno == ENAMETOOLONG);
    EXPECT(write(open(node, O_WRONLY), "x", 1) == 1);
    errno = 77;
    close(open(file, O_RDONLY));
    EXPECT(!access(file, R_OK));

    /* Without an environment. */
    clearenv();
    EXPECT(!access(file, R_OK));
    pid_t child = vfork();
    if (child == 0)
        _exit(access(file, R_OK) ? 1 : 0);
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);

    /* A thread may end in there. */
    pthread_t thread;
    void *result;
    EXPECT(!pthread_create(&thread, NULL, cancelled, NULL));
    usleep(10000);
    EXPECT(!pthread_cancel(thread) && !pthread_join(thread, &result) && result == PTHREAD_CANCELED);
    puts("as it should be");
    return 0;
}
