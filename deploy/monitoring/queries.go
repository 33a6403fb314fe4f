// Package monitoring holds dashboards and alert rules for Prometheus and Grafana; its tests evaluate them against a
// cluster.
package monitoring

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

//go:embed dashboards/*.json alerts.yml
var files embed.FS

// dashboard holds the tested parts of a dashboard.
type dashboard struct {
	UID    string
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               struct{ UID string }
		FieldConfig              struct{ Defaults struct{ Unit string } }
		Targets                  []struct{ RefID, Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
}

// dashboards returns the dashboards by file name.
func dashboards() (map[string]dashboard, error) {
	all := map[string]dashboard{}
	found, err := files.ReadDir("dashboards")
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		text, err := files.ReadFile("dashboards/" + f.Name())
		if err != nil {
			return nil, err
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		all[f.Name()] = d
	}
	return all, nil
}

// alerts returns the expressions of the rules by name.
func alerts() (map[string]string, error) {
	text, err := files.ReadFile("alerts.yml")
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
		}
	}
	return all, nil
}

var (
	labelValues = regexp.MustCompile(`label_values\((\w+), (\w+)\)`)
	selector    = regexp.MustCompile(`\b(up|slurm_\w+|sluice_\w+)\b(\{[^}]*\})?`)
)

// Queries returns the queries of each panel and each variable, and one for each metric that an alert names, with their sources.
// Each must return something where Prometheus scrapes a cluster with jobs on GPUs.
func Queries() (map[string]string, error) {
	want := map[string]string{}
	boards, err := dashboards()
	if err != nil {
		return nil, err
	}
	for _, d := range boards {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				want[strings.NewReplacer("$instance", ".*", "$jobid", ".*").Replace(q.Expr)] = d.UID + ": " + p.Title
			}
		}
		for _, v := range d.Templating.List {
			if m := labelValues.FindStringSubmatch(v.Definition); m != nil {
				want[fmt.Sprintf("count by (%s) (%s{%s!=\"\"})", m[2], m[1], m[2])] = d.UID + ": variable " + v.Name
			}
		}
	}
	rules, err := alerts()
	for name, expr := range rules {
		for _, metric := range selector.FindAllString(expr, -1) {
			want[metric] = "alert " + name
		}
	}
	return want, err
}
