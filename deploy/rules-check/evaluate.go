package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// alertsOf reads a file of rules. What this program would leave out of account is an error.
func alertsOf(file string) ([]rulefmt.Rule, error) {
	groups, faults := rulefmt.ParseFile(file, false, model.UTF8Validation)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	var found []rulefmt.Rule
	for _, group := range groups.Groups {
		if group.Interval != 0 || group.QueryOffset != nil || group.Limit != 0 || group.Labels != nil {
			return nil, fmt.Errorf("group %s has more than a name and rules: it is not evaluated here", group.Name)
		}
		for _, rule := range group.Rules {
			if rule.Record != "" || rule.KeepFiringFor != 0 {
				return nil, fmt.Errorf("%s%s: `record` and `keep_firing_for` are not evaluated here", rule.Record, rule.Alert)
			}
			found = append(found, rule)
		}
	}
	return found, nil
}

// prometheus answers queries on the series of one test.
type prometheus struct {
	engine *promql.Engine
	series storage.Queryable
}

// started has every sample of a test from the start on: no query of ours looks ahead of its time.
func started(given test, interval time.Duration) (prometheus, error) {
	var all []storage.Series
	for _, each := range given.Series {
		names, values, err := parser.ParseSeriesDesc(each.Series + " " + each.Values)
		if err != nil {
			return prometheus{}, fmt.Errorf("%s: %w", each.Series, err)
		}
		chunk := chunkenc.NewXORChunk()
		samples, err := chunk.Appender()
		if err != nil {
			return prometheus{}, err
		}
		for i, value := range values {
			if value.Histogram != nil {
				return prometheus{}, fmt.Errorf("%s: native histograms are not read here", each.Series)
			}
			if !value.Omitted {
				samples.Append((time.Duration(i) * time.Duration(given.Interval)).Milliseconds(), value.Value)
			}
		}
		all = append(all, &storage.SeriesEntry{Lset: names, SampleIteratorFn: chunk.Iterator})
	}
	choose := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		chosen := &seriesSet{}
		for _, each := range all {
			matches := true
			for _, matcher := range matchers {
				matches = matches && matcher.Matches(each.Labels().Get(matcher.Name))
			}
			if matches {
				chosen.left = append(chosen.left, each)
			}
		}
		return chosen
	}
	return prometheus{
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples:               1e6,
			Timeout:                  time.Hour,
			NoStepSubqueryIntervalFn: func(int64) int64 { return interval.Milliseconds() },
		}),
		series: &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: choose}},
	}, nil
}

// seriesSet is a storage.SeriesSet of what it holds.
type seriesSet struct {
	at   storage.Series
	left []storage.Series
}

func (set *seriesSet) Next() bool {
	if len(set.left) == 0 {
		return false
	}
	set.at, set.left = set.left[0], set.left[1:]
	return true
}

func (set *seriesSet) At() storage.Series            { return set.at }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

func (p prometheus) query(ctx context.Context, query string, at time.Time) (promql.Vector, error) {
	asked, err := p.engine.NewInstantQuery(ctx, p.series, nil, query, at)
	if err != nil {
		return nil, err
	}
	return asked.Exec(ctx).Vector()
}

// state is what Prometheus keeps of one alert.
type state struct {
	rule rulefmt.Rule
	// active maps the labels of an alert to the first of the evaluations, without a gap, that found it.
	active map[string]time.Time
	// firing are those that have been active for as long as the rule's `for`.
	firing []string
}

// evaluate does what a group of rules does at one time.
func (alert *state) evaluate(p prometheus, now time.Time) error {
	found, err := p.query(context.Background(), alert.rule.Expr, now)
	if err != nil {
		return err
	}
	before := alert.active
	alert.active, alert.firing = map[string]time.Time{}, nil
	for _, sample := range found {
		data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
		expanded := func(texts map[string]string, onto *labels.Builder) error {
			for name, text := range texts {
				// The names that Prometheus gives to what a template asks for most.
				text = "{{$labels := .Labels}}{{$value := .Value}}" + text
				made, err := template.NewTemplateExpander(
					context.Background(), text, alert.rule.Alert, data, model.Time(timestamp.FromTime(now)), p.query, nil, nil,
				).Expand()
				if err != nil {
					return err
				}
				onto.Set(name, made)
			}
			return nil
		}
		names := labels.NewBuilder(sample.Metric).Del(labels.MetricName)
		notes := labels.NewBuilder(labels.EmptyLabels())
		if err := errors.Join(expanded(alert.rule.Labels, names), expanded(alert.rule.Annotations, notes)); err != nil {
			return err
		}
		key := names.Set(labels.AlertName, alert.rule.Alert).Labels()
		if _, twice := alert.active[key.String()]; twice {
			return fmt.Errorf("two alerts have the labels %v", key)
		}
		since, ok := before[key.String()]
		if !ok {
			since = now
		}
		alert.active[key.String()] = since
		if now.Sub(since) >= time.Duration(alert.rule.For) {
			alert.firing = append(alert.firing, told(key, notes.Labels()))
		}
	}
	return nil
}
