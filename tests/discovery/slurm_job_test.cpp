#include "discovery/slurm_job.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::discovery {
namespace {

// As Slurm 22.05 writes it, for a job of `salloc -N2 --gpus=3`.
constexpr std::string_view kGpuJob = R"(JobId=38 JobName=interactive
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901759 Nice=0 Account=(null) QOS=(null)
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=0 Reboot=0 ExitCode=0:0
   DerivedExitCode=0:0
   RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A
   SubmitTime=2026-11-27T18:58:16 EligibleTime=2026-11-27T18:58:16
   AccrueTime=Unknown
   StartTime=2026-11-27T18:58:16 EndTime=Unknown Deadline=N/A
   PreemptEligibleTime=2026-11-27T18:58:16 PreemptTime=None
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-27T18:58:16 Scheduler=Main
   Partition=main AllocNode:Sid=localhost:16652
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=sn[1-2]
   BatchHost=sn1
   NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=2,node=2,billing=2
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   JOB_GRES=gpu:3
     Nodes=sn1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)
     Nodes=sn2 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=(null)
   WorkDir=/tmp
   Power=
   TresPerJob=gres:gpu:3
   

)";

// The lines that tell how a job ends.
std::string ended_job(std::string_view state, std::string_view run_time,
                      std::string_view time_limit, std::string_view preemption = "") {
  return cat("JobId=7 JobName=x JobState=RUNNING\n   JobState=", state,
             " Reason=None Dependency=(null)\n   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0\n",
             "   RunTime=", run_time, " TimeLimit=", time_limit, " TimeMin=N/A\n",
             "   StartTime=2026-11-27T18:20:01 EndTime=2026-11-27T18:20:13 Deadline=N/A\n",
             preemption, "   NodeList=sn[1-2]\n");
}

bool cancelled(const std::string& text) {
  const auto job = parse_slurm_job(text, "7");
  EXPECT_TRUE(job.ok()) << job.status().message();
  return job.ok() && is_cancelled(*job);
}

TEST(SlurmJob, HasItsPartOfEachNodesGpus) {
  const auto job = parse_slurm_job(kGpuJob, "38");
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_EQ(job->nodes, "sn[1-2]");
  EXPECT_EQ(job->state, "RUNNING");
  EXPECT_FALSE(job->is_batch);
  ASSERT_EQ(job->resources.size(), 2U);
  EXPECT_EQ(gpus_text(job->resources.at("sn1")), "2");
  EXPECT_EQ(gpus_text(job->resources.at("sn2")), "1");
  EXPECT_TRUE(uses_gpus(*job));
  EXPECT_FALSE(is_cancelled(*job));
}

TEST(SlurmJob, NodesAndKindsOfResourcesMayStandTogether) {
  const auto job = parse_slurm_job(
      "JobId=7 JobName=x\n   JobState=RUNNING\n   NodeList=a[1-3]\n"
      "     Nodes=a[1-2] CPU_IDs=0-3 Mem=0 "
      "GRES=gpu:a100:2(IDX:0,3),gpu:v100:1(IDX:4),nic:2(CNT:2)\n"
      "     Nodes=a3 CPU_IDs=0 Mem=0 GRES=\n",
      "7");
  ASSERT_TRUE(job.ok()) << job.status().message();
  ASSERT_EQ(job->resources.size(), 2U);
  for (const char* const node : {"a1", "a2"}) {
    EXPECT_EQ(gpus_text(job->resources.at(node)), "a100:2,v100:1");
    EXPECT_EQ(gpus_in(job->resources.at(node)), 3);
  }
}

TEST(SlurmJob, WithoutResourcesUsesNoGpus) {
  const auto job = parse_slurm_job(ended_job("RUNNING", "00:00:12", "UNLIMITED"), "7");
  ASSERT_TRUE(job.ok()) << job.status().message();
  EXPECT_TRUE(job->resources.empty());
  EXPECT_FALSE(uses_gpus(*job));
  EXPECT_TRUE(job->is_batch);
  EXPECT_TRUE(job->may_be_requeued);
}

// The last task has the id of the array, of which scontrol then shows all tasks.
TEST(SlurmJob, OfAnArrayIsTheTaskWithThisId) {
  constexpr std::string_view kArray = R"(JobId=39 ArrayJobId=39 ArrayTaskId=2 JobName=job.sh
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:04 TimeLimit=UNLIMITED TimeMin=N/A
   StartTime=2026-11-27T18:58:25 EndTime=Unknown Deadline=N/A
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=sn1
   Power=
   

JobId=41 ArrayJobId=39 ArrayTaskId=1 JobName=job.sh
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:04 TimeLimit=UNLIMITED TimeMin=N/A
   StartTime=2026-11-27T18:58:25 EndTime=Unknown Deadline=N/A
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=sn2
   Power=
   

)";
  const auto last = parse_slurm_job(kArray, "39");
  ASSERT_TRUE(last.ok()) << last.status().message();
  EXPECT_EQ(last->task_id, "39_2");
  EXPECT_EQ(last->nodes, "sn1");
  const auto first = parse_slurm_job(kArray, "41");
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(first->task_id, "39_1");
  EXPECT_EQ(first->nodes, "sn2");
}

TEST(SlurmJob, IsCancelledIfItEndsBeforeItsTimeForNoOther) {
  const std::string preempted =
      "   PreemptEligibleTime=2026-11-27T18:20:01 PreemptTime=2026-11-27T18:20:13\n";
  const std::string not_preempted = "   PreemptEligibleTime=2026-11-27T18:20:01 PreemptTime=None\n";
  EXPECT_TRUE(cancelled(ended_job("COMPLETING", "00:00:12", "UNLIMITED")));
  EXPECT_TRUE(cancelled(ended_job("CANCELLED", "00:00:12", "00:01:00", not_preempted)));
  EXPECT_TRUE(cancelled(ended_job("COMPLETING", "23:59:59", "1-00:00:00")));

  std::string requeued = ended_job("COMPLETING", "00:00:00", "UNLIMITED");
  requeued.replace(requeued.find("EndTime=") + 8, 19, "Unknown");
  EXPECT_FALSE(cancelled(requeued));
  EXPECT_TRUE(parse_slurm_job(requeued, "7")->is_requeued);
  EXPECT_FALSE(cancelled(ended_job("RUNNING", "00:00:12", "00:01:00")));
  EXPECT_FALSE(cancelled(ended_job("COMPLETING", "00:00:12", "00:01:00", preempted)));
  EXPECT_FALSE(cancelled(ended_job("COMPLETING", "00:01:00", "00:01:00")));
  EXPECT_FALSE(cancelled(ended_job("COMPLETING", "1-00:00:07", "1-00:00:00")));
}

TEST(SlurmJob, WhatIsMissingIsSaid) {
  EXPECT_EQ(parse_slurm_job("", "7").status().message(), "Slurm says nothing of its job 7");
  EXPECT_EQ(parse_slurm_job(ended_job("RUNNING", "", ""), "8").status().message(),
            "Slurm says nothing of its job 8");
  EXPECT_EQ(parse_slurm_job("JobId=7 JobName=x\n", "7").status().message(),
            "Slurm does not say the state of its job 7");
  EXPECT_FALSE(parse_slurm_job("JobId=7\n JobState=RUNNING\n Nodes=a[1 GRES=gpu:1\n", "7").ok());
}

}  // namespace
}  // namespace hvd::discovery
