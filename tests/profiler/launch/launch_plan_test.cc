// What launchers would send, to the word; and what their options refuse.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "engine/base/error.h"
#include "profiler/launch/launcher.h"

namespace trimtab {
namespace {

class LaunchPlanTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("SLURM_JOB_ID"); }
  void TearDown() override { unsetenv("SLURM_JOB_ID"); }

  /// Sixteen ranks with a GPU each, on nodes of eight.
  static LaunchRequest Sixteen() {
    return {.name = "ab12-7",
            .study = "ab12",
            .ranks = 16,
            .ranks_per_node = 8,
            .gpus = true,
            .program = "/opt/trim tab/trimtab",
            .arguments = {"profile", "--config", "it's.json"},
            .log_path = "/home/me/study.db.log"};
  }

  static std::string PlanText(const std::string& name, const std::vector<std::string>& options,
                              const LaunchRequest& request) {
    return ToText(MakeLauncher(name, options)->Plan(request));
  }
  static std::string RootFlag() { return ::geteuid() == 0 ? " --allow-run-as-root" : ""; }
};

constexpr char kProgram[] = "'/opt/trim tab/trimtab' profile --config 'it'\\''s.json'\n";

TEST_F(LaunchPlanTest, InprocStartsTheProgramAlone) {
  EXPECT_EQ(PlanText("inproc", {}, Sixteen()), kProgram);
}

TEST_F(LaunchPlanTest, LocalOversubscribesThisMachine) {
  EXPECT_EQ(PlanText("local", {}, Sixteen()),
            "mpirun -n 16 --oversubscribe --bind-to none" + RootFlag() + " " + kProgram);
}

TEST_F(LaunchPlanTest, MpirunFillsItsHosts) {
  EXPECT_EQ(
      PlanText("mpirun", {"host=a:8,b:8", "interface=ib0"}, Sixteen()),
      "mpirun -n 16 --host a:8,b:8 --map-by slot --mca btl_tcp_if_include ib0 --bind-to none" +
          RootFlag() + " " + kProgram);
}

TEST_F(LaunchPlanTest, SlurmHoldsNodesAndStartsSteps) {
  EXPECT_EQ(PlanText("slurm",
                     {"account=me", "partition=gpu,gpu2", "constraint=h200&ib", "time=1-00:30:00",
                      "container-image=/img/a.sqsh", "container-mounts=/data:/data,/home:/home",
                      "no-container-mount-home", "cpus-per-task=12"},
                     Sixteen()),
            std::string("# /home/me/study.db.log.slurm.sh\n"
                        "#!/bin/sh\n"
                        "# Holds nodes, on which a search starts its steps.\n"
                        "exec sleep infinity\n"
                        "sbatch --parsable --job-name=trimtab-ab12 --nodes=2 --ntasks-per-node=8 "
                        "--exclusive --gpus-per-node=8 --account=me --partition=gpu,gpu2 "
                        "'--constraint=h200&ib' --time=1-00:30:00 --cpus-per-task=12 --requeue "
                        "--output=/dev/null /home/me/study.db.log.slurm.sh\n"
                        "srun --job-name=ab12-7 --jobid=JOBID --overlap --nodes=2 --ntasks=16 "
                        "--ntasks-per-node=8 --mpi=pmix --cpu-bind=none --kill-on-bad-exit=1 "
                        "--cpus-per-task=12 --container-image=/img/a.sqsh "
                        "--container-mounts=/data:/data,/home:/home --no-container-mount-home "
                        "--input=0 ") +
                kProgram);
}

TEST_F(LaunchPlanTest, SlurmSpreadsOverTheNodesItIsGiven) {
  LaunchRequest request = Sixteen();
  request.ranks = 1;
  request.gpus = false;
  const LaunchPlan plan = MakeLauncher("slurm", {"nodes=4", "share"})->Plan(request);
  EXPECT_EQ(plan.reserve,
            (std::vector<std::string>{"sbatch", "--parsable", "--job-name=trimtab-ab12",
                                      "--nodes=4", "--ntasks-per-node=1", "--requeue",
                                      "--output=/dev/null", "/home/me/study.db.log.slurm.sh"}));
  EXPECT_EQ(plan.start[4], "--nodes=1") << "a step takes no node that has no rank";
  EXPECT_EQ(plan.start[7], "--mpi=none") << "one rank meets nobody";
}

TEST_F(LaunchPlanTest, WithinAJobItsNodesAreTaken) {
  setenv("SLURM_JOB_ID", "77", 1);
  const auto launcher = MakeLauncher("slurm", {});
  EXPECT_TRUE(launcher->Plan(Sixteen()).reserve.empty());
  EXPECT_EQ(launcher->Plan(Sixteen()).start[2], "--jobid=77");
  EXPECT_TRUE(launcher->PlanJob(Sixteen(), "/run/x", 0).reserve.empty());
}

TEST_F(LaunchPlanTest, ATrainingJobMayBeRequeued) {
  const LaunchPlan plan = MakeLauncher("slurm", {"qos=low"})->PlanJob(Sixteen(), "/run/x", 120);
  EXPECT_NE(plan.files.at(0).text.find("scontrol requeue"), std::string::npos);
  const std::string text = ToText({.reserve = plan.reserve});
  EXPECT_EQ(text, std::string("sbatch --parsable --job-name=ab12-7 --nodes=2 --ntasks-per-node=8 "
                              "--exclusive --gpus-per-node=8 --qos=low --requeue "
                              "--open-mode=append --output=/home/me/study.db.log "
                              "--signal=USR2@120 /run/x.slurm.sh --nodes=2 --ntasks=16 "
                              "--ntasks-per-node=8 --mpi=pmix --cpu-bind=none "
                              "--kill-on-bad-exit=1 ") +
                      kProgram);
}

TEST_F(LaunchPlanTest, KubernetesIsWrittenAndNeverSent) {
  const auto launcher =
      MakeLauncher("kubernetes", {"image=registry/trimtab:1", "claim=data", "namespace=ml"});
  EXPECT_EQ(ToText(launcher->Plan(Sixteen())),
            R"(# ab12-7.mpijob.yaml
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: "ab12-7"
  namespace: "ml"
spec:
  slotsPerWorker: 8
  runPolicy:
    cleanPodPolicy: Running
    backoffLimit: 0
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: trimtab
              image: "registry/trimtab:1"
              command:
                - "mpirun"
                - "-n"
                - "16"
                - "--bind-to"
                - "none"
                - "/opt/trim tab/trimtab"
                - "profile"
                - "--config"
                - "it's.json"
              volumeMounts:
                - name: shared
                  mountPath: "/work"
          volumes:
            - name: shared
              persistentVolumeClaim:
                claimName: "data"
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: trimtab
              image: "registry/trimtab:1"
              resources:
                limits:
                  "nvidia.com/gpu": 8
              volumeMounts:
                - name: shared
                  mountPath: "/work"
          volumes:
            - name: shared
              persistentVolumeClaim:
                claimName: "data"
)");
  EXPECT_THROW(launcher->Submit(Sixteen()), EnvironmentError);
  EXPECT_THROW(MakeLauncher("kubernetes", {}), UsageError);
}

struct Refused {
  const char* launcher;
  std::vector<std::string> options;
  const char* message;
};

class RefusedOptions : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedOptions, AreNamed) {
  try {
    MakeLauncher(GetParam().launcher, GetParam().options);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, std::string(GetParam().message).size()),
              GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, RefusedOptions,
    ::testing::Values(
        Refused{"slrm", {}, "--launcher: unknown launcher \"slrm\"; did you mean 'slurm'?"},
        Refused{
            "slurm",
            {"acount=me"},
            "--launcher-options: \"acount\" is not an option of slurm; did you mean 'account'?"},
        Refused{"slurm", {"wrap=rm"}, "--launcher-options: \"wrap\" is not an option of slurm"},
        Refused{"slurm",
                {"nodes=0"},
                "--launcher-options: nodes is \"0\"; expected a whole number, at least 1"},
        Refused{"slurm", {"nodes=4x"}, "--launcher-options: nodes is \"4x\""},
        Refused{
            "slurm", {"time=soon"}, "--launcher-options: time is \"soon\"; expected minutes, or"},
        Refused{"slurm", {"time=1:2-3"}, "--launcher-options: time is \"1:2-3\"; expected minutes"},
        Refused{"slurm", {"time=90:"}, "--launcher-options: time is \"90:\"; expected minutes"},
        Refused{"slurm", {"partition=a b"}, "--launcher-options: partition is \"a b\"; expected"},
        Refused{"slurm", {"partition=a\n#SBATCH -N9"}, "--launcher-options: partition is"},
        Refused{"slurm", {"partition=$(id)"}, "--launcher-options: partition is"},
        Refused{"slurm", {"partition=--help"}, "--launcher-options: partition is"},
        Refused{"slurm", {"account"}, "--launcher-options: account is \"\"; expected a word"},
        Refused{"slurm", {"share=1"}, "--launcher-options: share is \"1\"; expected no value"},
        Refused{"slurm", {"qos=a", "qos=b"}, "--launcher-options: qos is given twice"},
        Refused{"inproc",
                {"qos=a"},
                "--launcher-options: \"qos\" is not an option of inproc, which has none"},
        Refused{"mpirun",
                {"hostfile=/nonexistent"},
                "--launcher-options: hostfile is \"/nonexistent\"; expected a file"},
        Refused{"mpirun",
                {"hostfile=/etc/hosts", "host=a"},
                "--launcher-options: host contradicts hostfile"}));

}  // namespace
}  // namespace trimtab
