/* headrace-copy TARGET: copies /view, the content of this image, to TARGET. TARGET is replaced by a rename, so it is
 * never incomplete.
 *
 * It runs as an init container: as any user, on a read-only root file system, in an image with no other programs or
 * libraries. So it is linked statically, and writes only below TARGET's parent. After an interrupted run it starts from
 * the beginning. If TARGET already has the same view, it does nothing.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const SOURCE = "/view";
/* The file that identifies a view; the builder writes it. */
static const char *const VERSION = "version";

static void fail(const char *what, const char *path)
{
    fprintf(stderr, "headrace-copy: %s %s: %s\n", what, path, strerror(errno));
    exit(1);
}

static void copy_file(int from, int to, const char *path)
{
    /* File systems of the same type may share the data; between others, sendfile saves a fifth of a copy's time. */
    ssize_t n;
    while ((n = copy_file_range(from, NULL, to, NULL, 1 << 30, 0)) > 0)
        ;
    while ((n = sendfile(to, from, NULL, 1 << 30)) > 0)
        ;
    if (n < 0)
        fail("copy", path);
}

static void copy_folder(int from, int to, const char *path)
{
    DIR *entries = fdopendir(from);
    if (entries == NULL)
        fail("read folder", path);
    struct dirent *entry;
    while ((errno = 0, entry = readdir(entries)) != NULL) {
        const char *name = entry->d_name;
        struct stat its;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (fstatat(from, name, &its, AT_SYMLINK_NOFOLLOW) < 0)
            fail("look at", name);
        if (S_ISLNK(its.st_mode)) {
            char target[4096];
            ssize_t length = readlinkat(from, name, target, sizeof target - 1);
            if (length < 0)
                fail("read link", name);
            target[length] = '\0';
            if (symlinkat(target, to, name) < 0)
                fail("make link", name);
            continue;
        }
        int folder = S_ISDIR(its.st_mode);
        int in = openat(from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (in < 0)
            fail("open", name);
        if (folder && mkdirat(to, name, 0700) < 0)
            fail("make folder", name);
        int out = openat(to, name, (folder ? O_RDONLY : O_WRONLY | O_CREAT | O_EXCL) | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (out < 0)
            fail("make", name);
        if (folder)
            copy_folder(in, out, name);
        else
            copy_file(in, out, name);
        /* Readable by all whatever the umask is: the user's container may run as another user. */
        if (fchmod(out, its.st_mode & 07777) < 0)
            fail("set the mode of", name);
        if (!folder)
            close(in);
        if (close(out) < 0)
            fail("write", name);
    }
    if (errno != 0)
        fail("read folder", path);
    closedir(entries);
}

static void remove_tree(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return;
    int folder = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    if (entries == NULL)
        fail("remove", name);
    struct dirent *entry;
    while ((entry = readdir(entries)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_tree(folder, entry->d_name);
    closedir(entries);
    if (unlinkat(parent, name, AT_REMOVEDIR) < 0)
        fail("remove", name);
}

/* Reads at most `size` - 1 bytes of FOLDER/version into `text`, which is empty if the file is missing. */
static void version_of(const char *folder, char *text, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, VERSION);
    text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t length = read(fd, text, size - 1);
    text[length < 0 ? 0 : length] = '\0';
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc != 2 || argv[1][0] != '/' || strlen(argv[1]) > 4000) {
        fprintf(stderr, "Usage: headrace-copy TARGET (an absolute path)\n");
        return 2;
    }
    const char *target = argv[1];
    char ours[256], theirs[256], parts[4096];
    version_of(SOURCE, ours, sizeof ours);
    version_of(target, theirs, sizeof theirs);
    if (ours[0] != '\0' && strcmp(ours, theirs) == 0)
        return 0;
    snprintf(parts, sizeof parts, "%s.part", target);
    remove_tree(AT_FDCWD, parts);
    if (mkdir(parts, 0755) < 0)
        fail("make folder", parts);
    int from = open(SOURCE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0)
        fail("open", SOURCE);
    int to = open(parts, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (to < 0)
        fail("open", parts);
    copy_folder(from, to, SOURCE);
    if (fchmod(to, 0755) < 0)
        fail("set the mode of", parts);
    remove_tree(AT_FDCWD, target);
    if (rename(parts, target) < 0)
        fail("rename to", target);
    return 0;
}
