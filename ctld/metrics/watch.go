package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sluice-hpc/sluice/ctld/state"
	pb "github.com/sluice-hpc/sluice/proto/sluice/v1"
)

// Watch counts events as they are committed, and the idle time of GPUs.
type Watch struct {
	registry *prometheus.Registry
	commit   prometheus.Histogram
	wait     *prometheus.HistogramVec
	start    prometheus.Histogram
	run      prometheus.Histogram
	submit   prometheus.Counter
	started  prometheus.Counter
	ended    *prometheus.CounterVec
	requeued prometheus.Counter

	idle idleGPUs
}

// maxPartitions bounds the partitions that have histograms; jobs of others are counted under "other".
const maxPartitions = 200

func newWatch() *Watch {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	total := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	w := &Watch{registry: prometheus.NewRegistry(),
		commit: histogram("sluice_commit_seconds", "Duration of a commit of the state database.",
			[]float64{.00025, .0005, .001, .002, .004, .008, .016, .032, .064, .125, .25, .5, 1, 4}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sluice_job_wait_seconds",
			Help:    "Time from a job's eligible time to its first start.",
			Buckets: []float64{.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}},
			[]string{"partition"}),
		start: histogram("sluice_job_start_latency_seconds", "Time from the start of a job in the controller to the start of its "+
			"script on the node.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}),
		run: histogram("sluice_job_run_seconds", "Run time of jobs that have ended.",
			[]float64{1, 10, 60, 300, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600, 7 * 24 * 3600}),
		submit:  total("sluice_jobs_submitted_total", "Accepted submissions; an array counts as one."),
		started: total("sluice_jobs_started_total", "Starts of jobs, including those after a requeue."),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_jobs_ended_total",
			Help: "Jobs that ended, by their last state."}, []string{"state"}),
		requeued: total("sluice_jobs_requeued_total", "Jobs that were put back into the queue."),
	}
	w.registry.MustRegister(w.commit, w.wait, w.start, w.run, w.submit, w.started, w.ended, w.requeued)
	return w
}

// Committed observes the duration of a commit.
func (w *Watch) Committed(took time.Duration) { w.commit.Observe(took.Seconds()) }

// Changed counts the events of a commit. It is a loop observer.
func (w *Watch) Changed(c state.Change) {
	for _, e := range c.Events {
		switch e := e.(type) {
		case state.JobSubmitted:
			w.submit.Inc()
		case state.JobStarted:
			w.started.Inc()
			if j := e.Job; j.Attempt == 1 {
				w.wait.WithLabelValues(partitionOf(c.View, j)).Observe(max(0, float64(j.StartNs-max(j.EligibleNs, j.SubmitNs))/1e9))
			}
		case state.JobRequeued:
			w.requeued.Inc()
		case state.JobEnded:
			w.end(e.Job)
		}
	}
}

func (w *Watch) end(j *pb.JobRecord) {
	w.ended.WithLabelValues(state.StateName(j)).Inc()
	if j.Attempt == 0 || j.StartNs == 0 {
		return
	}
	w.run.Observe(max(0, float64(j.EndNs-j.StartNs)/1e9))
	if j.BatchStartNs != 0 {
		w.start.Observe(max(0, float64(j.BatchStartNs-j.StartNs)/1e9))
	}
}

func partitionOf(v *state.View, j *pb.JobRecord) string {
	if len(v.Partitions()) > maxPartitions {
		return other
	}
	return j.Partition
}

// idleGPUs adds up the time for which users leave their jobs' GPUs idle. Users keep their series for as long as the controller runs,
// because a counter must not shrink: the first Top with idle time have one, all others share "other".
type idleGPUs struct {
	mu      sync.Mutex
	seconds map[string]float64 // all users with a series, and other
	now     map[string]float64 // GPUs that are idle now
	held    float64            // GPUs held by jobs whose activity is known
	lastNS  int64
}

// idleAfter is the time without activity after which a GPU counts as idle.
const idleAfter = time.Minute

// LookEvery is the interval of calls to LookAtGPUs.
const LookEvery = 15 * time.Second

// maxStep bounds the time that one look counts: the machine may have been asleep.
const maxStep = 4 * LookEvery

// LookAtGPUs counts the time since its last call. It walks over the running jobs.
func (s *Source) LookAtGPUs() {
	nowNS, v, now, held := s.Boot(), s.View(), map[string]float64{}, 0.0
	for j := range v.Jobs.All() {
		if j.State != pb.JobState_JOB_RUNNING {
			continue
		}
		idle, of := s.idleOf(v, j, nowNS)
		held += of
		if of > 0 { // users whose GPUs are all busy have a series too, at 0
			now[j.Spec.GetUser()] += idle
		}
	}
	s.Watch().idle.put(now, held, nowNS, s.Top())
}

// idleOf returns how many GPUs of a job are idle, and for how many this is known. A shared GPU is idle when all its users are.
func (s *Source) idleOf(v *state.View, j *pb.JobRecord, nowNS int64) (idle, of float64) {
	for _, a := range j.Alloc {
		n := v.Node(a.Node)
		if n == nil || n.Inv == nil || a.Ended {
			continue
		}
		for _, d := range a.Devices {
			if d.Count > 0 || d.Name != "gpu" || d.Share > 0 {
				continue
			}
			last, since := s.Samples.Get(a.Node, n.Inv.Instance(d), nowNS-staleNS)
			if last == nil || last.UtilPercent < 0 {
				continue
			}
			of++
			if since != 0 && nowNS-max(since, v.Steady(j.StartNs)) >= int64(idleAfter) {
				idle++
			}
		}
	}
	return idle, of
}

// staleNS is the age up to which a sample of a GPU counts.
const staleNS = int64(2 * time.Minute)

func (g *idleGPUs) put(now map[string]float64, held float64, nowNS int64, top int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seconds == nil {
		g.seconds = map[string]float64{}
	}
	took := 0.0
	if g.lastNS != 0 {
		took = min(time.Duration(nowNS-g.lastNS), maxStep).Seconds()
	}
	g.lastNS, g.held, g.now = nowNS, held, map[string]float64{}
	for user, n := range now {
		if _, known := g.seconds[user]; !known && len(g.seconds) >= top {
			user = other
		}
		g.seconds[user] += n * max(0, took)
		g.now[user] += n
	}
}
