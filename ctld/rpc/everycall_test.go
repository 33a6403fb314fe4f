package rpc

import (
	"fmt"
	"strings"

	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// calls has one call of each method, on a job of alice's. Refusals of the reactor per job are returned as errors, too.
var calls = map[string]func(c pb.ControllerAPIClient, job uint32) error{
	"Ping": func(c pb.ControllerAPIClient, _ uint32) error { _, err := c.Ping(ctx, &pb.PingRequest{}); return err },
	"Submit": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Submit(ctx, request("#!/bin/sh\n"))
		return err
	},
	"SubmitLarge": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := submitLarge(c, request("#!/bin/sh\n"), 10)
		return err
	},
	"Jobs": func(c pb.ControllerAPIClient, _ uint32) error {
		return drain(c.Jobs(ctx, &pb.JobsRequest{}))(func(s pb.ControllerAPI_JobsClient) error { _, err := s.Recv(); return err })
	},
	"Nodes": func(c pb.ControllerAPIClient, _ uint32) error {
		return drain(c.Nodes(ctx, &pb.NodesRequest{}))(func(s pb.ControllerAPI_NodesClient) error { _, err := s.Recv(); return err })
	},
	"CreateToken": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.CreateToken(ctx, &pb.CreateTokenRequest{Node: "n1"})
		return err
	},
	"Tokens": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Tokens(ctx, &pb.TokensRequest{})
		return err
	},
	"RevokeToken": func(c pb.ControllerAPIClient, _ uint32) error {
		t, err := c.CreateToken(ctx, &pb.CreateTokenRequest{Node: "n1"})
		if err != nil {
			_, err := c.RevokeToken(ctx, &pb.RevokeTokenRequest{Id: "x"})
			if p, _ := problemOf(err); p != nil && pb.Code(p.Code) == pb.CodeInvalidSpec {
				return nil // it was allowed to ask
			}
			return err
		}
		_, err = c.RevokeToken(ctx, &pb.RevokeTokenRequest{Id: t.Id})
		return err
	},
	"RevokeHost": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.RevokeHost(ctx, &pb.RevokeHostRequest{Name: "n2"})
		return err
	},
	"Certificates": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Certificates(ctx, &pb.CertificatesRequest{})
		return err
	},
	"Hosts": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Hosts(ctx, &pb.HostsRequest{})
		return err
	},
	"Partitions": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Partitions(ctx, &pb.PartitionsRequest{})
		return err
	},
	"Config": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Config(ctx, &pb.ConfigRequest{})
		return err
	},
	"BatchScript": func(c pb.ControllerAPIClient, job uint32) error {
		return drain(c.BatchScript(ctx, &pb.BatchScriptRequest{JobId: job}))(func(s pb.ControllerAPI_BatchScriptClient) error {
			_,
				err := s.Recv()
			return err
		})
	},
	"CancelJobs": func(c pb.ControllerAPIClient, job uint32) error {
		r, err := c.CancelJobs(ctx, &pb.CancelJobsRequest{Ids: []string{fmt.Sprint(job)}})
		return outcome(r.GetOutcomes(), err)
	},
	"ControlJobs": func(c pb.ControllerAPIClient, job uint32) error {
		r, err := c.ControlJobs(ctx, &pb.ControlJobsRequest{Verb: "hold", Ids: []string{fmt.Sprint(job)}})
		return outcome(r.GetOutcomes(), err)
	},
	"UpdateJob": func(c pb.ControllerAPIClient, job uint32) error {
		r, err := c.UpdateJob(ctx, &pb.UpdateJobRequest{Ids: []string{fmt.Sprint(job)}, Set: []*pb.KeyValue{{Key: "Comment", Value: "x"}}})
		return outcome(r.GetOutcomes(), err)
	},
	"UpdateNode": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.UpdateNode(ctx, &pb.UpdateNodeRequest{Nodes: "n1", Set: []*pb.KeyValue{{Key: "Comment", Value: "x"}}})
		return err
	},
	"CreateNodes": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.CreateNodes(ctx, &pb.CreateNodesRequest{Nodes: "d1"})
		return err
	},
	"DeleteNodes": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.DeleteNodes(ctx, &pb.DeleteNodesRequest{Nodes: "d1"})
		return err
	},
	"UpdatePartition": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.UpdatePartition(ctx, &pb.UpdatePartitionRequest{Name: "debug", Set: []*pb.KeyValue{{Key: "State", Value: "UP"}}})
		return err
	},
	"WaitJob": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.WaitJob(ctx, &pb.WaitJobRequest{JobId: 1}) // has ended
		return err
	},
	"Reconfigure": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Reconfigure(ctx, &pb.ReconfigureRequest{})
		return err
	},
	"Shutdown": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Shutdown(ctx, &pb.ShutdownRequest{})
		return err
	},
	"Backup": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Backup(ctx, &pb.BackupRequest{})
		return err
	},
	"Stats": func(c pb.ControllerAPIClient, _ uint32) error { _, err := c.Stats(ctx, &pb.StatsRequest{}); return err },
	"Reservations": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Reservations(ctx, &pb.ReservationsRequest{})
		return err
	},
	"UpdateReservation": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.UpdateReservation(ctx, &pb.UpdateReservationRequest{Name: "no-such", Delete: true})
		if p, _ := problemOf(err); p != nil && pb.Code(p.Code) == pb.CodeResvInvalid {
			return nil // it was allowed to ask
		}
		return err
	},
	"Policy": func(c pb.ControllerAPIClient, _ uint32) error {
		return drain(c.Policy(ctx, &pb.PolicyRequest{}))(func(s pb.ControllerAPI_PolicyClient) error { _, err := s.Recv(); return err })
	},
	"ChangePolicy": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.ChangePolicy(ctx, &pb.ChangePolicyRequest{Names: []string{"lab"}, CheckOnly: true})
		if p, _ := problemOf(err); p != nil && strings.Contains(p.Detail, "operators (AdminLevel)") {
			return nil // anybody may ask; the reactor judges
		}
		return err
	},
	"Topology": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Topology(ctx, &pb.TopologyRequest{})
		return err
	},
	"Licenses": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Licenses(ctx, &pb.LicensesRequest{})
		return err
	},
	"Explain": func(c pb.ControllerAPIClient, job uint32) error {
		_, err := c.Explain(ctx, &pb.ExplainRequest{Id: fmt.Sprint(job)})
		return err
	},
	"Gpus": func(c pb.ControllerAPIClient, _ uint32) error {
		stream, err := c.Gpus(ctx, &pb.GpusRequest{})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	},
	"Priorities": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Priorities(ctx, &pb.PrioritiesRequest{})
		return err
	},
	"Accounting": func(c pb.ControllerAPIClient, _ uint32) error {
		return drain(c.Accounting(ctx, &pb.AccountingRequest{}))(func(s pb.ControllerAPI_AccountingClient) error {
			_,
				err := s.Recv()
			return err
		})
	},
	"AccountingScript": func(c pb.ControllerAPIClient, job uint32) error {
		return drain(c.AccountingScript(ctx,
			&pb.AccountingScriptRequest{JobId: job}))(func(s pb.ControllerAPI_AccountingScriptClient) error {
			_,
				err := s.Recv()
			return err
		})
	},
	"Crontab": func(c pb.ControllerAPIClient, _ uint32) error { // whose: crontab_test.go
		_, err := c.Crontab(ctx, &pb.CrontabRequest{})
		return err
	},
	"UpdateCrontab": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.UpdateCrontab(ctx, &pb.UpdateCrontabRequest{Text: "# nothing\n"})
		return err
	},
	"SetDebug": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.SetDebug(ctx, &pb.SetDebugRequest{Level: "info"})
		return err
	},
	"Report": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Report(ctx, &pb.ReportRequest{})
		return err
	},
	"Budgets": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.Budgets(ctx, &pb.BudgetsRequest{})
		return err
	},
	"AccountUsage": func(c pb.ControllerAPIClient, _ uint32) error {
		_, err := c.AccountUsage(ctx, &pb.AccountUsageRequest{Decayed: true})
		return err
	},
	"CreateStep": func(c pb.ControllerAPIClient, job uint32) error {
		_, err := c.CreateStep(ctx, &pb.CreateStepRequest{JobId: job, Spec: &pb.StepSpec{Addresses: []string{"127.0.0.1:1"}}})
		return but(err, pb.CodeJobPending) // what becomes of one that runs: steps_test.go
	},
	"Steps": func(c pb.ControllerAPIClient, _ uint32) error {
		return drain(c.Steps(ctx, &pb.StepsRequest{}))(func(s pb.ControllerAPI_StepsClient) error { _, err := s.Recv(); return err })
	},
	"WaitStep": func(c pb.ControllerAPIClient, job uint32) error {
		_, err := c.WaitStep(ctx, &pb.WaitStepRequest{JobId: job})
		return but(err, pb.CodeInvalidJobID)
	},
	"UpdateStep": func(c pb.ControllerAPIClient, job uint32) error {
		_, err := c.UpdateStep(ctx, &pb.UpdateStepRequest{Id: fmt.Sprint(job, ".0"), Set: []*pb.KeyValue{{Key: "TimeLimit", Value: "5"}}})
		return but(err, pb.CodeJobPending)
	},
	"AttachStep": func(c pb.ControllerAPIClient, job uint32) error {
		_, err := c.AttachStep(ctx, &pb.AttachStepRequest{JobId: job, Addresses: []string{"127.0.0.1:1"}})
		return but(err, pb.CodeJobPending)
	},
	"WaitAllocation": func(c pb.ControllerAPIClient, job uint32) error {
		_, err := c.WaitAllocation(ctx, &pb.WaitAllocationRequest{JobId: job})
		return err
	},
	"EndAllocation": func(c pb.ControllerAPIClient, job uint32) error {
		_, err := c.EndAllocation(ctx, &pb.EndAllocationRequest{JobId: job})
		return but(err, pb.CodeNotSupported)
	},
	"Usage": func(c pb.ControllerAPIClient, job uint32) error {
		_, err := c.Usage(ctx, &pb.UsageRequest{Ids: []string{fmt.Sprint(job)}}) // whether the job is the caller's: accounting_test.go
		return err
	},
}

// but is an error other than the refusal of somebody who was allowed to ask.
func but(err error, refusal pb.Code) error {
	if p, _ := problemOf(err); p != nil && pb.Code(p.Code) == refusal {
		return nil
	}
	return err
}
