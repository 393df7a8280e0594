/*
 * Files: drop-ins, sizes, kinds of file, who may have written them, secrets. Each test works in a
 * directory of its own.
 */
#include "tests/unit/test_config.h"

#include "supervisor/config/reader.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];
static char main_file[128];
static char folder[160];

static void set_up(void)
{
	snprintf(directory, sizeof(directory), "/tmp/sandpool-config-XXXXXX");
	cr_assert_not_null(mkdtemp(directory));
	snprintf(main_file, sizeof(main_file), "%s/sandpool.json", directory);
	snprintf(folder, sizeof(folder), "%s.d", main_file);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	SP_UNUSED(stat);
	SP_UNUSED(type);
	SP_UNUSED(ftw);
	return remove(path);
}

static void tear_down(void)
{
	nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(config_files, .init = set_up, .fini = tear_down);

static void write_mode(const char *path, const char *text, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	cr_assert(fd >= 0, "%s", path);
	cr_assert(write(fd, text, len) == (ssize_t)len);
	cr_assert(fchmod(fd, mode) == 0);
	close(fd);
}

static void write_file(const char *path, const char *text)
{
	write_mode(path, text, strlen(text), 0644);
}

static void write_dropin(const char *name, const char *text)
{
	char path[512];

	(void)mkdir(folder, 0755);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	write_file(path, text);
}

static struct sp_config *load_good(bool with_secrets)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;
	int status = sp_config_load(main_file, with_secrets, &config, &faults);

	cr_assert(status == 0, "status %d: %s", status, faults_text(&faults));
	sp_config_faults_done(&faults);
	return config;
}

/* The one fault has these words. */
static void load_bad(bool with_secrets, bool trusted, int wanted, const char *words)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;
	int status = sp_config_load_as(main_file, with_secrets, trusted, &config, &faults);
	char *message = faults_text(&faults);

	cr_assert(status == wanted, "status %d: %s", status, message);
	cr_assert_null(config);
	cr_assert_not_null(strstr(message, words), "%s", message);
	cr_assert(faults.count == 1, "%s", message);
	free(message);
	sp_config_faults_done(&faults);
}

Test(config_files, a_file_that_is_missing_is_named)
{
	load_bad(false, false, -ENOENT, "sandpool.json: cannot be opened: No such file");
}

Test(config_files, drop_ins_merge_objects_and_replace_the_rest_in_the_order_of_names)
{
	struct sp_config *config;

	write_file(main_file, "{\"listen\": [\"unix:///a\", \"unix:///b\"], \"pools\": {\"p\": "
			      "{\"max_idle\": 1, \"max_total\": 9, \"limits\": {\"pids\": 20}}}}");
	write_dropin("20-b.json", "{\"pools\": {\"p\": {\"max_idle\": 3}}}");
	write_dropin("10-a.json",
		     "{\"listen\": [\"unix:///c\"], \"pools\": {\"p\": {\"max_idle\": 2, "
		     "\"limits\": {\"cpu\": 2}}, \"q\": {}}}");
	config = load_good(false);

	cr_assert(config->listen_count == 1);
	cr_assert_str_eq(config->listen[0], "unix:///c");
	cr_assert(config->pool_count == 2);
	cr_assert(config->pools[0].policy.max_idle == 3);
	cr_assert(config->pools[0].policy.max_total == 9);
	cr_assert(config->pools[0].pids == 20);
	cr_assert(config->pools[0].cpu == 2);
	sp_config_free(config);
}

Test(config_files, only_json_files_of_the_folder_count)
{
	struct sp_config *config;

	write_file(main_file, "{}");
	write_dropin("10-a.json~", "nonsense");
	write_dropin("10-a.conf", "nonsense");
	write_dropin(".10-a.json", "nonsense");
	write_dropin(".json", "nonsense");
	config = load_good(false);
	sp_config_free(config);
}

Test(config_files, a_fault_stands_in_the_file_that_had_the_last_word)
{
	write_file(main_file, "{\n\"max_connections\": 0\n}");
	write_dropin("10.json", "{\n\n\"max_connections\": -1}");
	load_bad(false, false, -EINVAL, "10.json:3: max_connections: ");
}

Test(config_files, a_fault_of_a_value_that_no_drop_in_touched_stands_in_the_main_file)
{
	write_file(main_file, "{\n\"pools\": {\"p\":\n{\"network\": \"x\"}}}");
	write_dropin("10.json", "{\"pools\": {\"p\": {\"max_idle\": 1}}}");
	load_bad(false, false, -EINVAL, "sandpool.json:3: pools.p.network: ");
}

Test(config_files, a_drop_in_that_is_no_json_hides_no_other_file_s_syntax)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;

	write_file(main_file, "{,}");
	write_dropin("10.json", "[]");
	write_dropin("20.json", "{");
	cr_assert(sp_config_load(main_file, false, &config, &faults) == -EINVAL);
	cr_assert(faults.count == 3);
	cr_assert_not_null(strstr(faults.items[0].file, "/sandpool.json"));
	cr_assert_not_null(strstr(faults.items[1].file, "/10.json"));
	cr_assert_not_null(strstr(faults.items[2].file, "/20.json"));
	sp_config_faults_done(&faults);
}

Test(config_files, drop_ins_up_to_their_limit)
{
	struct sp_config *config;

	write_file(main_file, "{}");
	for (unsigned int i = 0; i < SP_CONFIG_DROPINS_MAX; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%02u.json", i);
		write_dropin(name, "{}");
	}
	config = load_good(false);
	sp_config_free(config);
	write_dropin("99.json", "{}");
	load_bad(false, false, -EINVAL, "has 65 files, at most 64");
}

Test(config_files, a_file_up_to_its_limit)
{
	size_t size = SP_CONFIG_FILE_MAX + 1;
	char *text = malloc(size);
	struct sp_config *config;

	memset(text, ' ', size);
	memcpy(text, "{}", 2);
	write_mode(main_file, text, SP_CONFIG_FILE_MAX, 0644);
	config = load_good(false);
	sp_config_free(config);
	write_mode(main_file, text, SP_CONFIG_FILE_MAX + 1, 0644);
	load_bad(false, false, -EFBIG, "larger than 4194304 bytes");
	free(text);
}

Test(config_files, what_is_no_regular_file_is_refused_without_hanging, .timeout = 10)
{
	cr_assert(mkfifo(main_file, 0644) == 0);
	load_bad(false, false, -EINVAL, "not a regular file");
	cr_assert(unlink(main_file) == 0);
	cr_assert(mkdir(main_file, 0755) == 0);
	load_bad(false, false, -EINVAL, "not a regular file");
	cr_assert(rmdir(main_file) == 0);
	write_file(main_file, "{}");
	cr_assert(mkdir(folder, 0755) == 0);
	write_dropin("10.json", "{}");
	cr_assert(chdir(folder) == 0 && mkfifo("20.json", 0644) == 0);
	load_bad(false, false, -EINVAL, "20.json: not a regular file");
}

Test(config_files, a_folder_that_is_a_file_is_refused)
{
	write_file(main_file, "{}");
	write_file(folder, "");
	load_bad(false, false, -ENOTDIR, "sandpool.json.d: cannot be opened");
}

Test(config_files, keys_of_resolved_configurations_are_ignored_but_secrets_refused)
{
	struct sp_config *config;

	write_file(main_file, "{\"api_keys\": \"***\", \"pools\": {\"p\": {\"seccomp_digest\": "
			      "\"0123456789abcdef\"}}}");
	config = load_good(false);
	cr_assert(config->api_key_count == 0);
	cr_assert_null(config->pools[0].seccomp_digest);
	sp_config_free(config);
	write_file(main_file, "{\"api_keys\": [\"0123456789abcdef\"]}");
	load_bad(false, false, -EINVAL, "api_keys: secrets do not belong here");
}

Test(config_files, a_dump_is_a_configuration_file)
{
	struct sp_config *config;
	char *first;
	char *second;

	write_file(main_file, "{\"pools\": {\"p\": {\"max_idle\": 3}}}");
	config = load_good(false);
	first = dump(config, false);
	sp_config_free(config);
	write_file(main_file, first);
	config = load_good(false);
	second = dump(config, false);
	cr_assert_str_eq(first, second);
	free(first);
	free(second);
	sp_config_free(config);
}

/* ---- who may have written it ---- */

Test(config_files, the_compiler_trusts_only_root_s_files)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;

	if (geteuid() != 0)
		cr_skip_test("needs root to give files away");
	write_file(main_file, "{}");
	cr_assert(sp_config_load_as(main_file, false, true, &config, &faults) == 0);
	sp_config_free(config);
	cr_assert(chmod(main_file, 0664) == 0);
	load_bad(false, true, -EPERM, "writable by its group (mode 0664)");
	cr_assert(chmod(main_file, 0646) == 0);
	load_bad(false, true, -EPERM, "writable by everybody");
	cr_assert(chmod(main_file, 0644) == 0);
	cr_assert(chown(main_file, 1000, 0) == 0);
	load_bad(false, true, -EPERM, "owned by uid 1000: must belong to root");
	cr_assert(chown(main_file, 65534, 0) == 0);
	load_bad(false, true, -EPERM, "owned by uid 65534, which is everybody else (root too)");
	config = load_good(false);
	sp_config_free(config);
}

Test(config_files, the_compiler_trusts_only_root_s_drop_ins)
{
	char path[512];

	if (geteuid() != 0)
		cr_skip_test("needs root to give files away");
	write_file(main_file, "{}");
	write_dropin("10.json", "{}");
	cr_assert(chmod(folder, 0775) == 0);
	load_bad(false, true, -EPERM, "sandpool.json.d: writable by its group");
	cr_assert(chmod(folder, 0755) == 0 && chown(folder, 1000, 0) == 0);
	load_bad(false, true, -EPERM, "sandpool.json.d: owned by uid 1000");
	cr_assert(chown(folder, 0, 0) == 0);
	snprintf(path, sizeof(path), "%s/10.json", folder);
	cr_assert(chown(path, 1000, 0) == 0);
	load_bad(false, true, -EPERM, "10.json: owned by uid 1000");
}

Test(config_files, a_profile_is_trusted_like_the_file_that_names_it)
{
	char profile[128];
	char text[256];

	if (geteuid() != 0)
		cr_skip_test("needs root to give files away");
	snprintf(profile, sizeof(profile), "%s/profile.json", directory);
	snprintf(text, sizeof(text), "{\"pools\": {\"p\": {\"seccomp_profile\": \"%s\"}}}",
		 profile);
	write_file(main_file, text);
	write_file(profile, "{}");
	cr_assert(chmod(profile, 0666) == 0);
	load_bad(false, true, -EINVAL, "profile.json: writable by everybody");
}

/* ---- seccomp profiles ---- */

static uint64_t digest_with_profile(const char *profile_text)
{
	struct sp_config *config;
	char profile[128];
	char text[256];
	uint64_t digest;

	snprintf(profile, sizeof(profile), "%s/profile.json", directory);
	snprintf(text, sizeof(text), "{\"pools\": {\"p\": {\"seccomp_profile\": \"%s\"}}}",
		 profile);
	write_file(main_file, text);
	write_file(profile, profile_text);
	config = load_good(false);
	digest = config->pools[0].policy.spec_generation;
	sp_config_free(config);
	return digest;
}

Test(config_files, a_changed_profile_is_another_sandbox)
{
	uint64_t first = digest_with_profile("{\"a\": 1}");

	cr_assert(digest_with_profile("{\"a\": 2}") != first);
	cr_assert(digest_with_profile("{\"a\": 1}") == first);
}

Test(config_files, the_resolved_configuration_carries_the_profile_s_digest)
{
	uint64_t first = digest_with_profile("{\"a\": 1}");
	struct sp_config *config = load_good(false);
	char *text = dump(config, true);
	struct sp_config *again = parse_good(text);

	cr_assert(again->pools[0].policy.spec_generation == first);
	free(text);
	sp_config_free(again);
	sp_config_free(config);
}

Test(config_files, a_profile_that_cannot_be_used_is_a_fault)
{
	write_file(main_file, "{\"pools\": {\"p\": {\"seccomp_profile\": \"/nonexistent/p\"}}}");
	load_bad(false, false, -EINVAL, "/nonexistent/p: cannot be opened");
	(void)digest_with_profile("{}");
	cr_assert(chdir(directory) == 0);
	write_file("profile.json", "{\n\n]");
	load_bad(false, false, -EINVAL, "profile.json:3: not a seccomp profile in JSON");
	write_file("profile.json", "[]");
	load_bad(false, false, -EINVAL, "must hold one object");
}

/* ---- secrets ---- */

static void use_keys(const char *keys, mode_t mode)
{
	char file[128];
	char text[256];

	snprintf(file, sizeof(file), "%s/keys", directory);
	snprintf(text, sizeof(text), "{\"api_keys_file\": \"%s\"}", file);
	write_file(main_file, text);
	write_mode(file, keys, strlen(keys), mode);
}

Test(config_files, keys_are_read_one_a_line)
{
	struct sp_config *config;

	use_keys("# comment\n\n0123456789abcdef\n  fedcba9876543210\t \r\n#x\nlast-line-has-none",
		 0600);
	config = load_good(true);
	cr_assert(config->api_key_count == 3);
	cr_assert_str_eq(config->api_keys[0], "0123456789abcdef");
	cr_assert_str_eq(config->api_keys[1], "fedcba9876543210");
	cr_assert_str_eq(config->api_keys[2], "last-line-has-none");
	sp_config_free(config);
}

Test(config_files, keys_are_read_only_when_secrets_are_wanted)
{
	struct sp_config *config;

	write_file(main_file, "{\"api_keys_file\": \"/nonexistent/keys\"}");
	config = load_good(false);
	cr_assert(config->api_key_count == 0);
	sp_config_free(config);
	load_bad(true, false, -EINVAL, "/nonexistent/keys: cannot be opened");
}

static void use_pem(const char *listen, const char *certificate, size_t key_len)
{
	char *key = calloc(1, key_len + 1);
	char path[128];
	char text[512];

	memset(key, '\n', key_len);
	memcpy(key, "-----BEGIN ", strlen("-----BEGIN "));
	snprintf(text, sizeof(text),
		 "{\"listen\": [\"%s\"], \"api_keys_file\": \"%s/keys\", "
		 "\"tls_certificate_file\": \"%s/cert\", \"tls_key_file\": \"%s/key\"}",
		 listen, directory, directory, directory);
	write_file(main_file, text);
	snprintf(path, sizeof(path), "%s/keys", directory);
	write_mode(path, "0123456789abcdef", 16, 0600);
	snprintf(path, sizeof(path), "%s/cert", directory);
	write_file(path, certificate);
	snprintf(path, sizeof(path), "%s/key", directory);
	write_mode(path, key, key_len, 0600);
	free(key);
}

Test(config_files, a_key_of_64_kib_is_read_and_one_byte_more_is_not)
{
	struct sp_config *config;

	use_pem("tls://127.0.0.1:1", "-----BEGIN C", SP_CONFIG_PEM_MAX);
	config = load_good(true);
	cr_assert(config->tls_certificate_count == 1 && config->tls_key_count == 1);
	cr_assert_str_eq(config->tls_certificate[0], "-----BEGIN C");
	cr_assert(strlen(config->tls_key[0]) == SP_CONFIG_PEM_MAX);
	sp_config_free(config);
	use_pem("tls://127.0.0.1:1", "-----BEGIN C", SP_CONFIG_PEM_MAX + 1);
	load_bad(true, false, -EINVAL, "/key: larger than 65536 bytes");
}

Test(config_files, a_certificate_that_is_none_is_refused)
{
	use_pem("tls://127.0.0.1:1", "DER", 20);
	load_bad(true, false, -EINVAL, "/cert: holds nothing in PEM format");
}

Test(config_files, without_a_tls_address_no_certificate_is_read)
{
	struct sp_config *config;

	use_pem("tcp://127.0.0.1:1", "DER", 20);
	config = load_good(true);
	cr_assert(config->tls_certificate_count == 0 && config->tls_key_count == 0);
	sp_config_free(config);
}

Test(config_files, keys_that_everybody_can_read_are_refused)
{
	use_keys("0123456789abcdef\n", 0644);
	load_bad(true, false, -EINVAL, "keys: holds secrets and is readable by everybody");
	use_keys("0123456789abcdef\n", 0640);
	sp_config_free(load_good(true));
}

Test(config_files, faults_of_keys_name_the_line_and_never_the_key)
{
	struct sp_config_faults faults;
	struct sp_config *config = NULL;
	char *message;

	use_keys("0123456789abcdef\nhunter2\n0123456789abcdef\nhunter2hunter2hunter2 x\n", 0600);
	cr_assert(sp_config_load(main_file, true, &config, &faults) == -EINVAL);
	message = faults_text(&faults);
	cr_assert(faults.count == 3, "%s", message);
	cr_assert_not_null(strstr(message, "keys:2: an API key must have 16 to 256 characters"));
	cr_assert_not_null(strstr(message, "keys:3: the same API key twice"));
	cr_assert_not_null(strstr(message, "keys:4: an API key must consist of printable"));
	cr_assert_null(strstr(message, "hunter2"));
	free(message);
	sp_config_faults_done(&faults);
}

Test(config_files, a_file_without_keys_is_a_fault)
{
	use_keys("# nothing\n", 0600);
	load_bad(true, false, -EINVAL, "holds no API key");
}

static void write_keys(unsigned int count)
{
	char keys[64 * (SP_CONFIG_API_KEYS_MAX + 1)] = "";

	for (unsigned int i = 0; i < count; i++)
		snprintf(keys + strlen(keys), sizeof(keys) - strlen(keys), "key-number-%08u\n", i);
	use_keys(keys, 0600);
}

Test(config_files, keys_up_to_their_limit)
{
	struct sp_config *config;

	write_keys(SP_CONFIG_API_KEYS_MAX);
	config = load_good(true);
	cr_assert(config->api_key_count == SP_CONFIG_API_KEYS_MAX);
	sp_config_free(config);
	write_keys(SP_CONFIG_API_KEYS_MAX + 1);
	load_bad(true, false, -EINVAL, "keys:65: more than 64 API keys");
}

Test(config_files, a_key_up_to_its_limit)
{
	char key[SP_CONFIG_API_KEY_MAX + 2];

	memset(key, 'k', sizeof(key));
	key[SP_CONFIG_API_KEY_MAX] = '\0';
	use_keys(key, 0600);
	sp_config_free(load_good(true));
	key[SP_CONFIG_API_KEY_MAX] = 'k';
	key[SP_CONFIG_API_KEY_MAX + 1] = '\0';
	use_keys(key, 0600);
	load_bad(true, false, -EINVAL, "16 to 256");
	use_keys("0123456789abcde", 0600);
	load_bad(true, false, -EINVAL, "16 to 256");
}

Test(config_files, a_bare_name_is_a_credential)
{
	struct sp_config *config;

	use_keys("0123456789abcdef\n", 0600);
	write_file(main_file, "{\"api_keys_file\": \"keys\"}");
	cr_assert(unsetenv("CREDENTIALS_DIRECTORY") == 0);
	load_bad(true, false, -EINVAL, "$CREDENTIALS_DIRECTORY is not set");
	cr_assert(setenv("CREDENTIALS_DIRECTORY", directory, 1) == 0);
	config = load_good(true);
	cr_assert(config->api_key_count == 1);
	sp_config_free(config);
	write_file(main_file, "{\"api_keys_file\": \"../keys\"}");
	load_bad(true, false, -EINVAL, "name of a systemd credential");
}
