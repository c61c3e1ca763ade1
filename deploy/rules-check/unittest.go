package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
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
	var alerts []rulefmt.Rule
	for _, name := range found.RuleFiles {
		read, err := alertsOf(filepath.Join(filepath.Dir(file), name))
		if err != nil {
			return err
		}
		alerts = append(alerts, read...)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, each := range found.Tests {
		if err := each.run(alerts, time.Duration(found.Interval)); err != nil {
			return fmt.Errorf("%s: %w", each.Name, err)
		}
		for _, expected := range each.Alerts {
			map[bool]map[string]bool{true: fires, false: silent}[len(expected.Alerts) > 0][expected.Name] = true
		}
	}
	var untested []string
	for _, rule := range alerts {
		if !fires[rule.Alert] || !silent[rule.Alert] {
			untested = append(untested, rule.Alert)
		}
	}
	if len(untested) > 0 {
		return fmt.Errorf("no test fires, or none does not fire: %s", strings.Join(untested, ", "))
	}
	fmt.Printf("%d tests of %d alerts\n", len(found.Tests), len(fires))
	return nil
}

func (each test) run(alerts []rulefmt.Rule, interval time.Duration) error {
	prometheus, err := started(each, interval)
	if err != nil {
		return err
	}
	last, asked := time.Duration(0), map[string]bool{}
	for _, expected := range each.Alerts {
		last = max(last, time.Duration(expected.Time))
		asked[expected.Name] = true
		if time.Duration(expected.Time)%interval != 0 {
			return fmt.Errorf("nothing is evaluated at %v", expected.Time)
		}
	}
	var states []*state
	for _, rule := range alerts {
		if asked[rule.Alert] {
			states = append(states, &state{rule: rule})
		}
	}
	for at := time.Duration(0); at <= last; at += interval {
		now := time.Unix(0, 0).UTC().Add(at)
		for _, alert := range states {
			if err := alert.evaluate(prometheus, now); err != nil {
				return fmt.Errorf("%s: %w", alert.rule.Alert, err)
			}
		}
		for _, expected := range each.Alerts {
			if time.Duration(expected.Time) != at {
				continue
			}
			if err := expected.compare(states); err != nil {
				return fmt.Errorf("%s after %s: %w", expected.Name, at, err)
			}
		}
	}
	return nil
}

func (expected expectation) compare(states []*state) error {
	known := false
	var want, have []string
	for _, alert := range states {
		if alert.rule.Alert == expected.Name {
			known = true
			have = append(have, alert.firing...)
		}
	}
	if !known {
		return errors.New("there is no such alert")
	}
	for _, alert := range expected.Alerts {
		all := maps.Clone(alert.Labels)
		if all == nil {
			all = map[string]string{}
		}
		all[labels.AlertName] = expected.Name
		want = append(want, told(labels.FromMap(all), labels.FromMap(alert.Annotations)))
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		return fmt.Errorf("expected\n  %s\nfound\n  %s", strings.Join(want, "\n  "), strings.Join(have, "\n  "))
	}
	return nil
}

func told(names, annotations labels.Labels) string {
	return fmt.Sprintf("%v %v", names, annotations)
}
