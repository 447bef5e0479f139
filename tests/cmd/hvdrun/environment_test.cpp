#include "cmd/hvdrun/environment.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>

namespace hvd::cli {
namespace {

using Entries = std::vector<std::string>;

bool has(const Entries& entries, const std::string& entry) {
  return std::find(entries.begin(), entries.end(), entry) != entries.end();
}

Entries given(const Entries& own, const EnvironmentArguments& arguments = {},
              const Values& values = {}) {
  auto result = worker_environment(own, arguments, values);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result->entries : Entries{};
}

Entries from_host(const Entries& own, const EnvironmentArguments& arguments = {}) {
  auto result = worker_environment(own, arguments, {});
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result->host_variables : Entries{};
}

TEST(WorkerEnvironment, IsTheWholeEnvironmentButForAFew) {
  EXPECT_EQ(given({"PATH=/bin", "EMPTY=", "A=b=c", "OLDPWD=/x", "BASH_FUNC_f%%=() { :; }",
                   "_HOROVOD_SECRET_KEY=s", "HVD_AGENT=/a"}),
            (Entries{"A=b=c", "EMPTY=", "PATH=/bin", "PYTHONUNBUFFERED=1",
                     "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
}

TEST(WorkerEnvironment, ExcludesByPatternAndIncludesAgain) {
  const Entries own{"AWS_ID=1", "AWS_REGION=r", "LANG=C", "MY_SECRET_KEY=k"};
  EXPECT_EQ(given(own, {.set = {}, .excluded = {"AWS_*"}, .included = {"AWS_REGION"}}),
            (Entries{"AWS_REGION=r", "LANG=C", "PYTHONUNBUFFERED=1",
                     "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
  EXPECT_EQ(
      given(own, {.set = {}, .excluded = {"*"}, .included = {"MY_*"}}),
      (Entries{"MY_SECRET_KEY=k", "PYTHONUNBUFFERED=1", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
}

struct NameAndValue {
  const char* name;
  const char* value;
};

// The names that clouds, registries, trackers, databases and shells give to secrets.
TEST(WorkerEnvironment, SecretsAreKeptFromOtherHosts) {
  constexpr auto kSecrets = std::to_array<NameAndValue>({
      {"AWS_SECRET_ACCESS_KEY", "s"},
      {"AWS_ACCESS_KEY_ID", "s"},
      {"AWS_SESSION_TOKEN", "s"},
      {"AWS_SECURITY_TOKEN", "s"},
      {"AZURE_CLIENT_SECRET", "s"},
      {"AZURE_STORAGE_KEY", "s"},
      {"AZURE_STORAGE_CONNECTION_STRING", "s"},
      {"AZURE_STORAGE_SAS_TOKEN", "s"},
      {"GOOGLE_API_KEY", "s"},
      {"GCP_CREDENTIALS", "{}"},
      {"CLOUDSDK_AUTH_ACCESS_TOKEN", "s"},
      {"ALIBABA_CLOUD_ACCESS_KEY_SECRET", "s"},
      {"OCI_CLI_KEY_CONTENT_PASSPHRASE", "s"},
      {"DIGITALOCEAN_ACCESS_TOKEN", "s"},
      {"HCLOUD_TOKEN", "s"},
      {"B2_APPLICATION_KEY", "s"},
      {"MINIO_ROOT_PASSWORD", "s"},
      {"S3_SECRET_KEY", "s"},
      {"HF_TOKEN", "s"},
      {"HUGGING_FACE_HUB_TOKEN", "s"},
      {"WANDB_API_KEY", "s"},
      {"COMET_API_KEY", "s"},
      {"NEPTUNE_API_TOKEN", "s"},
      {"MLFLOW_TRACKING_PASSWORD", "s"},
      {"CLEARML_API_SECRET_KEY", "s"},
      {"OPENAI_API_KEY", "s"},
      {"KAGGLE_KEY", "s"},
      {"GITHUB_TOKEN", "s"},
      {"GH_PAT", "s"},
      {"CI_JOB_TOKEN", "s"},
      {"CI_JOB_JWT", "s"},
      {"NPM_TOKEN", "s"},
      {"TWINE_PASSWORD", "s"},
      {"DOCKER_AUTH_CONFIG", "{}"},
      {"DOCKER_PASSWORD", "s"},
      {"VAULT_TOKEN", "s"},
      {"KUBE_TOKEN", "s"},
      {"TOKEN", "s"},
      {"SLACK_WEBHOOK_URL", "https://hooks"},
      {"SENTRY_DSN", "https://x"},
      {"PGPASSWORD", "s"},
      {"MYSQL_PWD", "s"},
      {"REDISCLI_AUTH", "s"},
      {"DATABASE_URL", "postgres://db/x"},
      {"DB_PASS", "s"},
      {"SSHPASS", "s"},
      {"GPG_PASSPHRASE", "s"},
      {"SSH_PRIVATE_KEY", "s"},
      {"RSYNC_PASSWORD", "s"},
      {"db_password", "s"},
      {"npm_config__auth", "s"},
      {"MONGO_URI", "mongodb://me:word@db/x"},
      {"https_proxy", "http://me:word@proxy:3128"},
      {"PIP_INDEX_URL", "https://token@index/simple"},
      {"PAT", "s"},
      {"SLACK_WEBHOOK", "https://hooks"},
      {"API_TOKENS", "s,t"},
      {"DB_PASSWORD", "12345"},
      {"API_TOKEN", "1234567890"},
      {"GITHUBTOKEN", "s"},
  });
  for (const auto& secret : kSecrets) {
    const std::string entry = std::string(secret.name) + "=" + secret.value;
    const auto result = worker_environment({entry}, {}, {});
    ASSERT_TRUE(result.ok()) << secret.name;
    EXPECT_FALSE(has(result->entries, entry)) << secret.name;
    EXPECT_TRUE(has(result->host_variables, secret.name)) << secret.name;
    EXPECT_TRUE(result->secrets == Entries{secret.name} ||
                std::string(secret.name).starts_with("SSH_"))
        << secret.name;
  }
}

// Values that the scanners of repositories look for, under names that tell nothing.
TEST(WorkerEnvironment, ValuesThatLookLikeSecretsStayWhateverTheirName) {
  const std::string letters = "abcdefghijABCDEFGHIJ0123456789abcdefghij0123456789";
  const std::vector<std::string> values{
      "ghp_" + letters,
      "github_pat_" + letters,
      "token=ghs_" + letters + ";",
      "glpat-" + letters,
      "AKIAIOSFODNN7EXAMPLE",
      "AIza" + letters,
      "ya29." + letters,
      "hf_" + letters,
      "sk-ant-api03-" + letters,
      "sk-" + letters,
      "nvapi-" + letters,
      "xoxb-123456789012-" + letters,
      "sk_live_" + letters,
      "SG." + letters + "." + letters,
      "npm_" + letters,
      "pypi-" + letters,
      "hvs." + letters,
      "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
      R"({"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\nMII"})",
      "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
      "Server=db;User=me;Password=word;",
      "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=abc==",
      "https://x.blob.core.windows.net/c?sv=1&sig=abc",
      "https://bucket.s3.amazonaws.com/x?X-Amz-Signature=abc",
      "Authorization: Basic bWU6d29yZA==",
      "Bearer abc"};
  for (const auto& value : values) {
    const auto result = worker_environment({"SETTING=" + value}, {}, {});
    ASSERT_TRUE(result.ok()) << value;
    EXPECT_EQ(result->secrets, Entries{"SETTING"}) << value;
    EXPECT_FALSE(has(result->entries, "SETTING=" + value));
  }
}

TEST(WorkerEnvironment, ValuesThatOnlyBeginLikeSecretsAreSent) {
  for (const char* const value :
       {"sk-learn", "hf_transfer", "task-0123456789abcdefghij0123456789", "AKIA", "SG.x",
        "/usr/lib/pypi-server", "eyJ", "npm_config", "-----BEGIN CERTIFICATE-----\nMII",
        "password=", "--pwd /data", "/opt/conda/envs/desk-0123456789abcdefghijklmnop/bin",
        "bearer"}) {
    const auto result = worker_environment({std::string("SETTING=") + value}, {}, {});
    ASSERT_TRUE(result.ok()) << value;
    EXPECT_EQ(result->secrets, Entries{}) << value;
  }
}

TEST(WorkerEnvironment, OnlyWhatIsNamedTravelsIfThatIsThePolicy) {
  const Entries own{"DATA=/d", "PATH=/bin", "AWS_REGION=eu", "HVD_LOG_LEVEL=debug",
                    "MINE=1",  "HF_TOKEN=t"};
  const auto result =
      worker_environment(own, {.set = {"MINE"}, .excluded = {}, .included = {"AWS_*"}},
                         {{"env-policy", {"named", "--env-policy"}}});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->entries, (Entries{"AWS_REGION=eu", "HVD_LOG_LEVEL=debug", "MINE=1",
                                      "PYTHONUNBUFFERED=1", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
  EXPECT_EQ(result->secrets, Entries{"HF_TOKEN"});
  EXPECT_EQ(result->unnamed, Entries{"DATA"});
  for (const char* const name : {"DATA", "PATH", "HF_TOKEN"}) {
    EXPECT_TRUE(has(result->host_variables, name)) << name << ": a host has its own";
  }
}

TEST(WorkerEnvironment, VariablesThatOnlySoundLikeSecretsAreSent) {
  constexpr auto kPlain = std::to_array<NameAndValue>({
      {"TOKENIZERS_PARALLELISM", "false"},
      {"KEYBOARD", "us"},
      {"PATH", "/bin"},
      {"PASSES", "3"},
      {"MONKEY", "1"},
      {"AWS_REGION", "eu-west-1"},
      {"AWS_PROFILE", "me"},
      {"AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"},
      {"VAULT_ADDR", "https://vault:8200"},
      {"GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json"},
      {"PGPASSFILE", "/home/me/.pgpass"},
      {"MLFLOW_TRACKING_URI", "http://tracker:5000"},
      {"http_proxy", "http://proxy:3128"},
      {"WANDB_PROJECT", "p"},
      {"HF_HOME", "/data"},
      {"AUTHOR", "me"},
      {"REPO", "git@host:me/x"},
      {"HF_TOKEN", ""},
      {"MAX_TOKENS", "512"},
      {"ADD_BOS_TOKEN", "True"},
      {"PAD_TOKEN", "<pad>"},
      {"LLAMA_EOS_TOKEN", "</s>"},
      {"SORT_KEY", "length"},
      {"GIT_REMOTE", "ssh://git@host/x"},
  });
  for (const auto& plain : kPlain) {
    const std::string entry = std::string(plain.name) + "=" + plain.value;
    const auto result = worker_environment({entry}, {}, {});
    ASSERT_TRUE(result.ok()) << plain.name;
    EXPECT_TRUE(has(result->entries, entry)) << plain.name;
    EXPECT_TRUE(result->secrets.empty()) << plain.name;
  }
}

TEST(WorkerEnvironment, ASecretIsSentWhenItIsAskedFor) {
  const Entries own{"HF_TOKEN=t", "WANDB_API_KEY=k", "AWS_SESSION_TOKEN=a", "PGPASSWORD=p"};
  const auto result = worker_environment(
      own, {.set = {"HF_TOKEN"}, .excluded = {"PG*"}, .included = {"WANDB_*"}}, {});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->entries, (Entries{"HF_TOKEN=t", "PYTHONUNBUFFERED=1",
                                      "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "WANDB_API_KEY=k"}));
  EXPECT_EQ(result->secrets, Entries{"AWS_SESSION_TOKEN"});
  EXPECT_FALSE(has(result->host_variables, "PGPASSWORD"));
}

TEST(WorkerEnvironment, EnvAddsAndReplaces) {
  const Entries own{"A=1", "OLDPWD=/x"};
  EXPECT_EQ(given(own, {.set = {"A=2=3", "B=", "OLDPWD"}, .excluded = {}, .included = {}}),
            (Entries{"A=2=3", "B=", "OLDPWD=/x", "PYTHONUNBUFFERED=1",
                     "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
}

TEST(WorkerEnvironment, DefaultsGiveWayToWhatIsSet) {
  for (const char* const entry : {"PYTHONUNBUFFERED=0", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"}) {
    EXPECT_TRUE(has(given({entry}), entry));
    EXPECT_TRUE(has(given({}, {.set = {entry}, .excluded = {}, .included = {}}), entry));
  }
}

TEST(WorkerEnvironment, NothingOfAnOuterJobPasses) {
  const Entries own{"HVD_WORKER=a#0",         "HVD_RANK=3",
                    "HVD_ELASTIC=1",          "HOROVOD_ELASTIC=1",
                    "HVD_HOST_LABELS=gpu=1",  "HOROVOD_GLOO_IFACE=eth7",
                    "NCCL_SOCKET_IFNAME=eth7"};
  EXPECT_EQ(given(own), given({}));
  EXPECT_EQ(given({"HVD_ELASTIC=1", "HOROVOD_ELASTIC=1", "HVD_HOST_LABELS=gpu=1"}), given({}));
  EXPECT_FALSE(
      has(given(own, {.set = {}, .excluded = {}, .included = {"HVD_*"}}), "HVD_ELASTIC=1"));

  const auto chosen =
      given(own, {.set = {"HOROVOD_GLOO_IFACE=e0"}, .excluded = {}, .included = {"NCCL_*"}});
  EXPECT_TRUE(has(chosen, "HOROVOD_GLOO_IFACE=e0"));
  EXPECT_TRUE(has(chosen, "NCCL_SOCKET_IFNAME=eth7"));
  EXPECT_TRUE(has(given({"NCCL_SOCKET_IFNAME=e1"}), "NCCL_SOCKET_IFNAME=e1")) << "the person's own";
}

// As mpirun, mpiexec.hydra, srun and torchrun set them for one process.
TEST(WorkerEnvironment, NothingOfAnOuterLauncherPasses) {
  const Entries own{"PMI_RANK=0",
                    "PMI_FD=6",
                    "PMIX_RANK=0",
                    "PMIX_SERVER_URI41=x",
                    "OMPI_COMM_WORLD_SIZE=1",
                    "OMPI_COMMAND=hvdrun",
                    "OMPI_MCA_ess=^singleton",
                    "OMPI_MCA_ess_base_jobid=1",
                    "OMPI_MCA_orte_hnp_uri=x",
                    "OMPI_MCA_pmix=^s1",
                    "MPI_LOCALNRANKS=1",
                    "MPI_LOCALRANKID=0",
                    "HYDI_CONTROL_FD=7",
                    "MV2_COMM_WORLD_RANK=0",
                    "FLUX_TASK_RANK=0",
                    "TORCHELASTIC_USE_AGENT_STORE=True",
                    "SLURM_PROCID=0",
                    "SLURM_STEP_ID=0",
                    "SLURM_STEP_GPUS=0",
                    "SLURM_NTASKS=1",
                    "SLURM_PMIX_MAPPING_SERV=x"};
  EXPECT_EQ(given(own), given({}));
  EXPECT_EQ(from_host(own), from_host({}));
  EXPECT_TRUE(has(given(own, {.set = {"SLURM_NTASKS"}, .excluded = {}, .included = {"PMI_*"}}),
                  "SLURM_NTASKS=1"));
  EXPECT_TRUE(has(given(own, {.set = {}, .excluded = {}, .included = {"PMI_*"}}), "PMI_RANK=0"));
}

TEST(WorkerEnvironment, SettingsOfMpiAndOfTheJobPass) {
  for (const char* const entry :
       {"OMPI_MCA_btl=tcp,self", "OMPI_MCA_pml=ob1", "OMPI_ALLOW_RUN_AS_ROOT=1",
        "PMIX_MCA_gds=hash", "I_MPI_FABRICS=shm", "MPIR_CVAR_NEMESIS_TCP_PORT_RANGE=1:2",
        "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=sn1", "SLURM_RESTART_COUNT=1", "PMIXER=1"}) {
    EXPECT_TRUE(has(given({entry}), entry)) << entry;
  }
}

TEST(WorkerEnvironment, EnvOfWhatHvdrunSetsItselfIsAnError) {
  const auto check = [](const char* word) {
    return check_env({.set = {word}, .excluded = {}, .included = {}});
  };
  for (const char* const word :
       {"RANK=9", "RANK", "WORLD_SIZE=5", "MASTER_ADDR=a", "MASTER_PORT=1", "HVD_RANK=1",
        "HVD_ELASTIC=0", "HOROVOD_ELASTIC=1", "HVD_HOST_LABELS=x", "TORCHELASTIC_RUN_ID=x"}) {
    EXPECT_FALSE(check(word).ok()) << word;
  }
  for (const char* const word : {"OMP_NUM_THREADS=1", "PYTHONUNBUFFERED=0", "PWD=/x", "RANKS=1",
                                 "NCCL_SOCKET_IFNAME=e0", "HOROVOD_GLOO_IFACE=e0"}) {
    EXPECT_TRUE(check(word).ok()) << word;
  }
}

TEST(WorkerEnvironment, VariablesThatDependOnTheHostComeFromTheHost) {
  const Entries own{"HOME=/home/me",     "USER=me",         "SSH_AUTH_SOCK=/tmp/s",
                    "SSH_NEW=1",         "XDG_SOMETHING=x", "PATH=/bin",
                    "DISPLAY=:0",        "TERM=xterm",      "CUDA_VISIBLE_DEVICES=0",
                    "LD_LIBRARY_PATH=/l"};
  EXPECT_EQ(given(own), (Entries{"LD_LIBRARY_PATH=/l", "PATH=/bin", "PYTHONUNBUFFERED=1",
                                 "TERM=xterm", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
  const auto names = from_host(own);
  for (const char* const name : {"HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "SSH_NEW",
                                 "XDG_SOMETHING", "DISPLAY", "CUDA_VISIBLE_DEVICES"}) {
    EXPECT_TRUE(has(names, name)) << name;
  }
  EXPECT_FALSE(has(names, "PATH"));
  EXPECT_TRUE(has(from_host({}), "HOME")) << "a host may have what is not set here";
}

TEST(WorkerEnvironment, TheDevicesOfAHostStayThere) {
  for (const char* const name :
       {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK",
        "NEURON_RT_VISIBLE_CORES", "TPU_VISIBLE_CHIPS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"}) {
    const std::string entry = std::string(name) + "=0";
    EXPECT_FALSE(has(given({entry}), entry)) << name;
    EXPECT_TRUE(has(from_host({entry}), name)) << name;
  }
}

TEST(WorkerEnvironment, VariablesThatAreNamedAreSent) {
  const EnvironmentArguments arguments{
      .set = {"HOME", "TMPDIR=/fast"}, .excluded = {}, .included = {}};
  EXPECT_EQ(given({"HOME=/h", "USER=me"}, arguments),
            (Entries{"HOME=/h", "PYTHONUNBUFFERED=1", "TMPDIR=/fast",
                     "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
  const auto names = from_host({"HOME=/h", "USER=me"}, arguments);
  EXPECT_FALSE(has(names, "HOME"));
  EXPECT_FALSE(has(names, "TMPDIR"));
  EXPECT_TRUE(has(names, "USER"));
}

TEST(WorkerEnvironment, ExcludedVariablesDoNotComeFromTheHostEither) {
  const auto names = from_host({}, {.set = {}, .excluded = {"SSH_*"}, .included = {"SSH_TTY"}});
  EXPECT_FALSE(has(names, "SSH_AUTH_SOCK"));
  EXPECT_TRUE(has(names, "SSH_TTY"));
}

TEST(WorkerEnvironment, ANameThatIsNotSetIsAnErrorThatSaysWhatToDo) {
  const auto result = worker_environment({}, {.set = {"GONE"}, .excluded = {}, .included = {}}, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(),
            "--env GONE: is not set in hvdrun's own environment; give it a value: --env GONE=...");
  EXPECT_FALSE(check_env({.set = {"=value"}, .excluded = {}, .included = {}}).ok());
}

TEST(WorkerEnvironment, AKnobIsGivenByBothItsNames) {
  const auto entries = given({"HOROVOD_CYCLE_TIME=9", "HVD_CYCLE_TIME=8"}, {},
                             {{"cycle-time-ms", {"2", "--cycle-time-ms"}}, {"grace", {"3", ""}}});
  EXPECT_EQ(entries, (Entries{"HOROVOD_CYCLE_TIME=2", "HVD_CYCLE_TIME=2", "PYTHONUNBUFFERED=1",
                              "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"}));
}

TEST(MisspeltSettings, AreWarnedOf) {
  EXPECT_EQ(
      warnings_of_misspelt_settings({"HVD_FUSON_THRESHOLD=1", "HVD_LOGLEVEL=debug", "PATH=/bin"}),
      (Entries{"environment variable HVD_FUSON_THRESHOLD is not a setting of hvd; did you mean "
               "HVD_FUSION_THRESHOLD?",
               "environment variable HVD_LOGLEVEL is not a setting of hvd; did you mean "
               "HVD_LOG_LEVEL?"}));
}

TEST(MisspeltSettings, OtherVariablesHaveNoWarning) {
  EXPECT_EQ(warnings_of_misspelt_settings({"HVD_FUSION_THRESHOLD=1",
                                           "HVD_GRACE=1",
                                           "HVD_ELASTIC=1",
                                           "HVD_RANK=0",
                                           "HVD_SIZE=2",
                                           "HVD_LOCAL_RANK=0",
                                           "HVD_LOCAL_SIZE=1",
                                           "HVD_CROSS_RANK=0",
                                           "HVD_CROSS_SIZE=1",
                                           "HVD_HOSTNAME=a",
                                           "HVD_JOB_ID=j",
                                           "HVD_RUN_ID=r",
                                           "HVD_WORKER=a#0",
                                           "HVD_WORKER_FD=3",
                                           "HVD_LIFE_FD=4",
                                           "HVD_RENDEZVOUS=a:1",
                                           "HVD_TOKEN_FILE=t",
                                           "HVD_RENDEZVOUS_ADDR=a",
                                           "HVD_RENDEZVOUS_PORT=1",
                                           "HVD_AGENT=/a",
                                           "HVD_NCCL_MODULE=m",
                                           "HVD_PMIX_LIBRARY=l",
                                           "HVD_HOST_LABELS=x",
                                           "HVD_EVENTS_DIR=e",
                                           "HVD_NETWORK_INTERFACE=e0",
                                           "HVD_STATE_FILE=f",
                                           "HVD_RUNTIME_DIR=d",
                                           "HVD_RUN_PORT=1",
                                           "HVD_RUN_KEY=k",
                                           "HVD_TRACE=1",
                                           "HVD_PROGRAMS_OWN=1",
                                           "HVD_DATA=/data",
                                           "HOROVOD_FUSON_THRESHOLD=1"}),
            Entries{});
}

}  // namespace
}  // namespace hvd::cli
