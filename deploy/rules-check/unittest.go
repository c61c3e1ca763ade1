package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"go.yaml.in/yaml/v3"
)

// suite is a file of tests, as far as promtool's format is used here: anything else in it is an error.
type suite struct {
	RuleFiles []string       `yaml:"rule_files"`
	Interval  model.Duration `yaml:"evaluation_interval"`
	Tests     []test         `yaml:"tests"`
}

type test struct {
	Name     string         `yaml:"name"`
	Interval model.Duration `yaml:"interval"`
	Series   []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Alerts []expectation `yaml:"alert_rule_test"`
}

type expectation struct {
	Time   model.Duration `yaml:"eval_time"`
	Name   string         `yaml:"alertname"`
	Alerts []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

// testFile fails unless every alert of the rules is seen to fire in one test and not to fire in another.
func testFile(file string) error {
	open, err := os.Open(file)
	if err != nil {
		return err
	}
	defer open.Close()
	var found suite
	decoder := yaml.NewDecoder(open)
	decoder.KnownFields(true)
	if err := decoder.Decode(&found); err != nil {
		return err
	}
	for i, rule := range found.RuleFiles {
		found.RuleFiles[i] = filepath.Join(filepath.Dir(file), rule)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, each := range found.Tests {
		if err := each.run(found); err != nil {
			return fmt.Errorf("%s: %w", each.Name, err)
		}
		for _, expected := range each.Alerts {
			map[bool]map[string]bool{true: fires, false: silent}[len(expected.Alerts) > 0][expected.Name] = true
		}
	}
	groups, err := load(found, &rules.ManagerOptions{Logger: promslog.NewNopLogger()})
	if err != nil {
		return err
	}
	var untested []string
	for _, rule := range alerting(groups) {
		if !fires[rule.Name()] || !silent[rule.Name()] {
			untested = append(untested, rule.Name())
		}
	}
	if len(untested) > 0 {
		return fmt.Errorf("no test fires, or none does not fire: %s", strings.Join(untested, ", "))
	}
	fmt.Printf("%d tests of %d alerts\n", len(found.Tests), len(fires))
	return nil
}

func load(found suite, options *rules.ManagerOptions) ([]*rules.Group, error) {
	manager := rules.NewManager(options)
	byName, faults := manager.LoadGroups(
		time.Duration(found.Interval), labels.EmptyLabels(), "", nil, false, found.RuleFiles...)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	var groups []*rules.Group
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		groups = append(groups, byName[name])
	}
	return groups, nil
}

func alerting(groups []*rules.Group) []*rules.AlertingRule {
	var found []*rules.AlertingRule
	for _, group := range groups {
		found = append(found, group.AlertingRules()...)
	}
	return found
}

func (each test) run(all suite) error {
	var input strings.Builder
	fmt.Fprintf(&input, "load %v\n", each.Interval)
	for _, series := range each.Series {
		fmt.Fprintf(&input, "  %s %s\n", series.Series, series.Values)
	}
	storage, err := promqltest.NewLazyLoader(input.String(), promqltest.LazyLoaderOpts{})
	if err != nil {
		return err
	}
	defer storage.Close()
	storage.SubqueryInterval = time.Duration(all.Interval)
	groups, err := load(all, &rules.ManagerOptions{
		Context:    context.Background(),
		Logger:     promslog.NewNopLogger(),
		Appendable: storage.Storage(),
		Queryable:  storage.Storage(),
		QueryFunc:  rules.EngineQueryFunc(storage.QueryEngine(), storage.Storage()),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	if err != nil {
		return err
	}
	var last model.Duration
	for _, expected := range each.Alerts {
		last = max(last, expected.Time)
	}
	for at := time.Duration(0); at <= time.Duration(last); at += time.Duration(all.Interval) {
		now := time.Unix(0, 0).UTC().Add(at)
		var fault error
		storage.WithSamplesTill(now, func(err error) {
			fault = err
			for _, group := range groups {
				group.Eval(context.Background(), now)
				for _, rule := range group.Rules() {
					if rule.LastError() != nil {
						fault = fmt.Errorf("%s: %w", rule.Name(), rule.LastError())
					}
				}
			}
		})
		if fault != nil {
			return fault
		}
		for _, expected := range each.Alerts {
			if time.Duration(expected.Time) != at {
				continue
			}
			if err := expected.compare(groups); err != nil {
				return fmt.Errorf("%s after %s: %w", expected.Name, at, err)
			}
		}
	}
	return nil
}

func (expected expectation) compare(groups []*rules.Group) error {
	known := false
	var want, have []string
	for _, rule := range alerting(groups) {
		if rule.Name() != expected.Name {
			continue
		}
		known = true
		for _, alert := range rule.ActiveAlerts() {
			if alert.State == rules.StateFiring {
				have = append(have, told(alert.Labels.Map(), alert.Annotations.Map()))
			}
		}
		for _, alert := range expected.Alerts {
			all := maps.Clone(alert.Labels)
			if all == nil {
				all = map[string]string{}
			}
			all[labels.AlertName] = expected.Name
			want = append(want, told(all, alert.Annotations))
		}
	}
	if !known {
		return errors.New("there is no such alert")
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("expected\n  %s\nfound\n  %s", strings.Join(want, "\n  "), strings.Join(have, "\n  "))
	}
	return nil
}

func told(names, annotations map[string]string) string {
	return fmt.Sprintf("%v %v", labels.FromMap(names), labels.FromMap(annotations))
}
