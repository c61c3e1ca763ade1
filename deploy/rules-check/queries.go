package main

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// selected is what one query asks of the database.
type selected struct {
	// Metrics maps a metric to the labels that its selectors match.
	Metrics map[string][]string `json:"metrics"`
	// Groups are the labels of all `by`, `on` and `group_left` of the query.
	Groups []string `json:"groups"`
}

func selectedBy(query string) (selected, error) {
	expression, err := parser.ParseExpr(query)
	if err != nil {
		return selected{}, err
	}
	found := selected{Metrics: map[string][]string{}, Groups: []string{}}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch each := node.(type) {
		case *parser.VectorSelector:
			matched := found.Metrics[each.Name]
			for _, matcher := range each.LabelMatchers {
				if matcher.Name != labels.MetricName && !slices.Contains(matched, matcher.Name) {
					matched = append(matched, matcher.Name)
				}
			}
			found.Metrics[each.Name] = append([]string{}, matched...)
		case *parser.AggregateExpr:
			found.Groups = append(found.Groups, each.Grouping...)
		case *parser.BinaryExpr:
			if each.VectorMatching != nil {
				found.Groups = append(found.Groups, each.VectorMatching.MatchingLabels...)
				found.Groups = append(found.Groups, each.VectorMatching.Include...)
			}
		}
		return nil
	})
	return found, nil
}
