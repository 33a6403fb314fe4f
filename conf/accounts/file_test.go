package accounts_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-hpc/sluice/conf/accounts"
)

// TestParseFile: lines that a real Slurm wrote, and lines that people write.
func TestParseFile(t *testing.T) {
	got, err := accounts.ParseFile("# To edit this file\n\nCluster - 'oracle':Fairshare=3:QOS='normal'\r\nParent - 'root'\n" +
		"Account - 'vision':Description='it: a # b':GrpTRES=cpu=100,gres/gpu=8 # really\n" +
		"  User - bob : Partition = \"debug\":QOS='-normal,+high'\nProject - it's:Organization=a'b:c'd\n")
	if err == nil || !strings.Contains(err.Error(), "line 7: a quote (') is not closed") {
		t.Fatalf("%v, %v", got, err)
	}
	got, err = accounts.ParseFile("# To edit this file\n\nCluster - 'oracle':Fairshare=3:QOS='normal'\r\nParent - 'root'\n" +
		"Account - 'vision':Description='it: a # b':GrpTRES=cpu=100,gres/gpu=8 # really\n" +
		"  User - bob : Partition = \"debug\":QOS='-normal,+high'\nProject - x:Organization=a'b:c'd")
	want := []accounts.FileLine{
		{3, "Cluster", "oracle", []accounts.FileOption{{"Fairshare", "3"}, {"QOS", "normal"}}},
		{4, "Parent", "root", nil},
		{5, "Account", "vision", []accounts.FileOption{{"Description", "it: a # b"}, {"GrpTRES", "cpu=100,gres/gpu=8"}}},
		{6, "User", "bob", []accounts.FileOption{{"Partition", "debug"}, {"QOS", "-normal,+high"}}},
		{7, "Account", "x", []accounts.FileOption{{"Organization", "a'b:c'd"}}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\ngot  %v\nwant %v", err, got, want)
	}
	for text, why := range map[string]string{
		"Parent - 'root'\nhello":           "line 2: a line begins with",
		"Clusters - 'x'":                   "line 1: a line begins with",
		"Account 'x'":                      "line 1: a line begins with",
		"\n\nAccount - ":                   "line 3: there is no name",
		"User - ''":                        "line 1: there is no name",
		"User - 'u':MaxJobs":               `line 1: "MaxJobs" is not NAME=VALUE`,
		"User - 'u':=3":                    `line 1: "=3" is not NAME=VALUE`,
		"User - 'u':":                      `line 1: "" is not NAME=VALUE`,
		"Account - 'x':Description=\"open": `line 1: a quote (") is not closed`,
	} {
		var bad *accounts.FileError
		lines, err := accounts.ParseFile(text)
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), why) || len(lines) >= bad.Number {
			t.Errorf("%q: %v, %v", text, lines, err)
		}
	}
}

// FuzzParseFile: what is read is read again from what is written of it.
func FuzzParseFile(f *testing.F) {
	f.Add("Cluster - 'oracle':Fairshare=3:QOS='normal'\nParent - 'root'\nUser - bob : Partition = \"debug\"\n")
	f.Add("Account - x:Description='a:b':GrpTRES=cpu=1")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := accounts.ParseFile(text)
		if err != nil {
			return
		}
		var b []byte
		for i := range lines {
			l := &lines[i]
			l.Name = accounts.Plain(l.Name)
			for j := range l.Options {
				o := &l.Options[j]
				if o.Value = accounts.Plain(o.Value); strings.ContainsAny(o.Value, ":#") && accounts.Find(accounts.Assoc, o.Key) != nil {
					return // no number
				}
				if strings.ContainsAny(o.Key, `'"`) {
					return
				}
			}
			if l.Name == "" {
				return
			}
			b = l.Append(b)
		}
		again, err := accounts.ParseFile(string(b))
		if err != nil || len(again) != len(lines) {
			t.Fatalf("%q: %v", b, err)
		}
		for i := range again {
			again[i].Number = lines[i].Number
			if !reflect.DeepEqual(again[i], lines[i]) {
				t.Fatalf("%q: %v, was %v", b, again[i], lines[i])
			}
		}
	})
}
