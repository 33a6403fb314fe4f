package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	schema "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
	"gopkg.in/yaml.v3"
)

// words are what the schema allows where a dashboard has one of its own words. The types that are generated from it are strings.
var words = map[string][]any{
	"panels.fieldConfig.defaults.unit": {units.Short, units.Seconds, units.Hours, units.BytesIEC,
		units.PercentUnit, units.Celsius, units.Watt, units.Joule, units.Hertz},
	"panels.fieldConfig.defaults.custom.drawStyle": {common.GraphDrawStyleLine, common.GraphDrawStyleBars, common.GraphDrawStylePoints},
	"panels.fieldConfig.defaults.custom.showPoints": {common.VisibilityModeAuto, common.VisibilityModeNever,
		common.VisibilityModeAlways},
	"panels.fieldConfig.defaults.custom.stacking.mode": {common.StackingModeNone, common.StackingModeNormal, common.StackingModePercent},
	"panels.fieldConfig.defaults.thresholds.mode":      {schema.ThresholdsModeAbsolute, schema.ThresholdsModePercentage},
	"panels.options.colorMode": {common.BigValueColorModeValue, common.BigValueColorModeBackground,
		common.BigValueColorModeBackgroundSolid, common.BigValueColorModeNone},
	"panels.options.displayMode": {common.BarGaugeDisplayModeBasic, common.BarGaugeDisplayModeLcd, common.BarGaugeDisplayModeGradient},
	"panels.options.graphMode":   {common.BigValueGraphModeNone, common.BigValueGraphModeLine, common.BigValueGraphModeArea},
	"panels.options.justifyMode": {common.BigValueJustifyModeAuto, common.BigValueJustifyModeCenter},
	"panels.options.legend.displayMode": {common.LegendDisplayModeList, common.LegendDisplayModeTable,
		common.LegendDisplayModeHidden},
	"panels.options.legend.placement": {common.LegendPlacementBottom, common.LegendPlacementRight},
	"panels.options.namePlacement": {common.BarGaugeNamePlacementAuto, common.BarGaugeNamePlacementTop, common.BarGaugeNamePlacementLeft,
		common.BarGaugeNamePlacementHidden},
	"panels.options.orientation": {common.VizOrientationAuto, common.VizOrientationVertical, common.VizOrientationHorizontal},
	"panels.options.percentChangeColorMode": {common.PercentChangeColorModeStandard, common.PercentChangeColorModeInverted,
		common.PercentChangeColorModeSameAsValue},
	"panels.options.sizing": {common.BarGaugeSizingAuto, common.BarGaugeSizingManual},
	"panels.options.textMode": {common.BigValueTextModeAuto, common.BigValueTextModeValue, common.BigValueTextModeValueAndName,
		common.BigValueTextModeName, common.BigValueTextModeNone},
	"panels.options.tooltip.mode": {common.TooltipDisplayModeSingle, common.TooltipDisplayModeMulti, common.TooltipDisplayModeNone},
	"panels.options.tooltip.sort": {common.SortOrderAscending, common.SortOrderDescending, common.SortOrderNone},
	"panels.options.valueMode":    {common.BarGaugeValueModeColor, common.BarGaugeValueModeText, common.BarGaugeValueModeHidden},
	"links.type":                  {schema.DashboardLinkTypeLink, schema.DashboardLinkTypeDashboards},
	"templating.list.type":        {schema.VariableTypeQuery, schema.VariableTypeDatasource},
	"timezone":                    {common.TimeZoneBrowser, common.TimeZoneUtc},
}

// classic is the form of the dashboards, that of files which all Grafanas since version 9 read; what replaces it, only the newest can.
//
//lint:ignore SA1019 see above
type classic = schema.Dashboard

// faults are what Grafana's schema has against a dashboard: fields that it does not know or misses, values of another type, and words that
// are none. The types are those that Grafana generates from its schema, with options and queries of panels.
func faults(text []byte) (all []string) {
	var d classic
	if err := d.UnmarshalJSONStrict(text); err != nil && err.Error() != "" { // without a fault it is an empty list of errors
		all = append(all, strings.Split(err.Error(), "\n")...)
	}
	var whole classic
	if err := json.Unmarshal(text, &whole); err != nil {
		return append(all, err.Error())
	}
	if err := whole.Validate(); err != nil {
		all = append(all, err.Error())
	}
	for _, p := range whole.Panels {
		if p.Panel == nil {
			continue // a row
		}
		if _, known := cog.ConfigForPanelcfgVariant(p.Panel.Type); !known {
			all = append(all, "there is no panel of type "+p.Panel.Type)
		}
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return append(all, err.Error())
	}
	return append(all, strange("", plain)...)
}

// strange are the values below path that are none of its words.
func strange(path string, value any) (all []string) {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			all = append(all, strange(strings.TrimPrefix(path+"."+key, "."), below)...)
		}
	case []any:
		for _, below := range v {
			all = append(all, strange(path, below)...)
		}
	case string:
		if can := words[path]; can != nil && !slices.ContainsFunc(can, func(w any) bool { return fmt.Sprint(w) == v }) {
			all = append(all, fmt.Sprintf("%s is %q, and not one of %v", path, v, can))
		}
	}
	return all
}

// TestSchema holds the dashboards against the schema of Grafana.
func TestSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	files, err := filepath.Glob("dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faults(text) {
			t.Errorf("%s: %s", file, fault)
		}
		if bytes.Contains(text, []byte("\r")) || !bytes.HasSuffix(text, []byte("}\n")) {
			t.Errorf("%s does not end with a line", file)
		}
	}
}

// TestSchemaRefuses: each kind of fault is found.
func TestSchemaRefuses(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	good, err := os.ReadFile("dashboards/sluice-gpus.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, by, want string }{
		"a field of the dashboard":     {`"editable": true`, `"editible": true`, "editible"},
		"one that is missing":          {`"schemaVersion": 38,`, ``, "schemaVersion"},
		"a field of a panel":           {`"gridPos": {`, `"grid": {}, "gridPos": {`, "grid"},
		"an option of a panel":         {`"graphMode": "area"`, `"graphmode": "area"`, "graphmode"},
		"a field of a query":           {`"legendFormat": "{{state}}"`, `"legend": "{{state}}"`, "legend"},
		"a value of another type":      {`"h": 5`, `"h": "5"`, "gridPos.h"},
		"a panel of another kind":      {`"type": "stat"`, `"type": "singlestat"`, "singlestat"},
		"a unit":                       {`"unit": "celsius"`, `"unit": "degrees"`, "degrees"},
		"a word that is none":          {`"colorMode": "value"`, `"colorMode": "rainbow"`, "rainbow"},
		"a variable of another kind":   {`"type": "datasource",`, `"type": "source",`, "source"},
		"a width that is more than it": {`"w": 24`, `"w": 25`, "gridPos.w"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Replace(good, []byte(c.old), []byte(c.by), 1)
			if bytes.Equal(bad, good) {
				t.Fatalf("the dashboard does not have %s", c.old)
			}
			if got := strings.Join(faults(bad), "\n"); !strings.Contains(got, c.want) {
				t.Errorf("nothing of %s in what is found: %q", c.want, got)
			}
		})
	}
}

// provisioning is what Grafana reads below provisioning/: of its keys those that these files may have.
type provisioning struct {
	APIVersion int `yaml:"apiVersion"`
	Providers  []struct {
		Name, Folder, Type    string
		FolderUID             string `yaml:"folderUid"`
		OrgID                 int    `yaml:"orgId"`
		DisableDeletion       bool   `yaml:"disableDeletion"`
		AllowUIUpdates        bool   `yaml:"allowUiUpdates"`
		UpdateIntervalSeconds int    `yaml:"updateIntervalSeconds"`
		Options               struct{ Path string }
	}
	Datasources []struct {
		Name, Type, Access, URL, UID string
		OrgID                        int  `yaml:"orgId"`
		IsDefault                    bool `yaml:"isDefault"`
		Editable                     bool
	}
}

// TestProvisioning: Grafana finds the dashboards where the role puts them, and a data source of the kind that they ask for.
func TestProvisioning(t *testing.T) {
	read := func(file string) (p provisioning) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		if err := d.Decode(&p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if p.APIVersion != 1 {
			t.Errorf("%s: apiVersion is %d", file, p.APIVersion)
		}
		return p
	}
	boards, sources := read("grafana-dashboards.yml").Providers, read("grafana-datasource.yml").Datasources
	if len(boards) != 1 || boards[0].Name == "" || boards[0].Type != "file" || !filepath.IsAbs(boards[0].Options.Path) {
		t.Fatalf("grafana-dashboards.yml: %+v", boards)
	}
	if len(sources) != 1 || sources[0].Name == "" || sources[0].Access != "proxy" || sources[0].URL == "" {
		t.Fatalf("grafana-datasource.yml: %+v", sources)
	}
	role, err := os.ReadFile("../ansible/roles/monitoring/tasks/grafana.yml")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`dest: ` + regexp.QuoteMeta(boards[0].Options.Path) + `/\n`).Match(role) {
		t.Errorf("the role puts no dashboards into %s", boards[0].Options.Path)
	}
	all, err := files.ReadDir("dashboards")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		text, err := files.ReadFile("dashboards/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		type variable struct {
			Type  string
			Query any // a string, or what it is made of
		}
		var d struct{ Templating struct{ List []variable } }
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(d.Templating.List, variable{"datasource", sources[0].Type}) {
			t.Errorf("%s does not ask for a data source of type %s", f.Name(), sources[0].Type)
		}
	}
}
