"""JSONPath and Go templates print what kubectl prints for them."""

from __future__ import annotations

import pytest

from pykueue.plugin.errors import PluginError
from pykueue.plugin.gotemplate import GoTemplate
from pykueue.plugin.jsonpath import JsonPath
from pykueue.plugin.output import Output, printer

QUEUES = {
    "kind": "ClusterQueueList",
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "items": [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "a", "labels": {"kueue.x-k8s.io/tier": "gold"}},
            "spec": {"cohortName": "pool", "on": True, "n": 3, "flavors": ["x", "y"]},
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "b"},
            "spec": {"on": False, "n": 5, "flavors": []},
        },
    ],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.items[0].metadata.name}", "a"),
        ("names: {.items[*].metadata.name}.", "names: a b."),
        ("{.items[-1:].metadata.name}", "b"),
        ("{.items[0].spec.flavors}", '["x","y"]'),
        ("{.items[0].metadata.labels}", '{"kueue.x-k8s.io/tier":"gold"}'),
        (r"{.items[0].metadata.labels.kueue\.x-k8s\.io/tier}", "gold"),
        ("{.items[0].metadata.labels['kueue.x-k8s.io/tier']}", "gold"),
        ("{.items[0]['metadata.name','spec.n']}", ""),
        ("{.items[0].spec['n','on']}", "3 true"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.spec.cohortName}{"\\n"}{end}', "a\tpool\nb\t\n"),
        ('{.items[?(@.metadata.name=="b")].spec.n}', "5"),
        (r"""{.items[?(@.metadata.name!="x\"]y")].spec.n}""", "3 5"),
        ("{.items[?(@.spec.n>3)].metadata.name}", "b"),
        ("{.items[?(@.spec.cohortName)].metadata.name}", "a"),
        ("{.items[?(@.spec.on==true)].metadata.name}", "a"),
        ("{..name}", "a b"),
        ("{.items[0,1].spec.n}", "3 5"),
        ("{$.kind}", "ClusterQueueList"),
        ("{.nothing.here}", ""),
        ("plain", "plain"),
    ],
)
def test_jsonpath_template_prints_what_kubectl_prints(template: str, text: str) -> None:
    assert JsonPath(template).render(QUEUES) == text


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{.items[0]", "unclosed action"),
        ("{range .items[*]}x", "unclosed range"),
        ("{end}", "nothing to end"),
        ("{.items[x]}", "invalid array index x"),
        ("{items}", "unrecognized expression"),
        ("{.items[7]}", "array index out of bounds: index 7, length 2"),
        ("{.kind[0]}", "is not array or slice"),
    ],
)
def test_wrong_jsonpath_is_refused_in_one_line(template: str, problem: str) -> None:
    with pytest.raises(PluginError, match=r"^error (parsing|executing) jsonpath") as refused:
        JsonPath(template).render(QUEUES)
    assert problem in str(refused.value)


def test_missing_fields_are_errors_where_they_are_not_allowed() -> None:
    with pytest.raises(PluginError, match="cohort is not found"):
        JsonPath("{.items[0].spec.cohort}", allow_missing=False).render(QUEUES)
    with pytest.raises(PluginError, match="no entry for key"):
        GoTemplate("{{.spec}}", allow_missing=False).render(QUEUES)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ('{{range .items}}{{.metadata.name}}{{"\\n"}}{{end}}', "a\nb\n"),
        ("{{range $i, $q := .items}}{{$i}}={{$q.metadata.name}} {{end}}", "0=a 1=b "),
        ("{{range .items}}{{if .spec.on}}on{{else}}off{{end}} {{end}}", "on off "),
        (
            "{{range .items}}{{if eq .spec.n 9}}nine{{else if gt .spec.n 4}}big{{else}}small{{end}} {{end}}",
            "small big ",
        ),
        ("{{with .nothing}}x{{else}}none{{end}}", "none"),
        ("{{len .items}} {{index .items 1 | len}}", "2 4"),
        ('{{(index .items 0).metadata.name | printf "%-4s|"}}', "a   |"),
        ('{{index (index .items 0).metadata.labels "kueue.x-k8s.io/tier"}}', "gold"),
        ('{{if and .items (not .nothing)}}{{printf "%d %q" 7 "x"}}{{end}}', '7 "x"'),
        ("{{.nothing}} {{(index .items 0).spec.flavors}}", "<no value> [x y]"),
        ("{{$n := 0}}{{range .items}}{{$n = .spec.n}}{{end}}{{$n}}", "5"),
        ("a {{- /* cut */ -}} b{{ `raw` }}", "abraw"),
        ("{{range .items}}{{if .spec.on}}{{continue}}{{end}}{{.metadata.name}}{{break}}{{end}}", "b"),
        ('{{"aGk=" | base64decode}} {{print 1 2 "x" 3}}', "hi 1 2x3"),
        ("{{range .items}}{{else}}empty{{end}}{{range .nothing}}{{else}}empty{{end}}", "empty"),
    ],
)
def test_go_template_prints_what_go_prints(template: str, text: str) -> None:
    assert GoTemplate(template).render(QUEUES) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{",
        "{{if .x}}",
        "{{end}}",
        "{{nope .}}",
        "{{.kind.x}}",
        '{{template "x"}}',
        "{{$x}}",
        "{{index .items 9}}",
    ],
)
def test_wrong_go_template_is_refused_in_one_line(template: str) -> None:
    with pytest.raises(PluginError, match=r"^error in go-template: [^\n]+$"):
        GoTemplate(template).render(QUEUES)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("name", "clusterqueue.kueue.x-k8s.io/a\nclusterqueue.kueue.x-k8s.io/b\n"),
        (
            "custom-columns=NAME:.metadata.name,COHORT:{.spec.cohortName}",
            "NAME   COHORT\na      pool\nb      <none>\n",
        ),
        ("custom-columns=FLAVORS:spec.flavors[*]", "FLAVORS\nx,y\n<none>\n"),
        ("jsonpath={.kind}", "ClusterQueueList"),
        ("jsonpath-as-json={.items[*].spec.n}", "[\n    3,\n    5\n]\n"),
        ("go-template={{.kind}}", "ClusterQueueList"),
    ],
)
def test_forms_of_a_list(form: str, text: str) -> None:
    assert printer(Output(form))(QUEUES) == text


def test_templates_come_from_files_too(tmp_path: object) -> None:
    path = f"{tmp_path}/template"
    with open(path, "w") as file:
        file.write("{.kind}")
    assert printer(Output(f"jsonpath-file={path}"))(QUEUES) == "ClusterQueueList"
    with open(path, "w") as file:
        file.write("NAME N\n.metadata.name .spec.n\n")
    assert printer(Output(f"custom-columns-file={path}"))(QUEUES) == "NAME   N\na      3\nb      5\n"
    with pytest.raises(PluginError, match="cannot be read: No such file"):
        printer(Output("jsonpath-file=/nowhere"))
    with pytest.raises(PluginError, match="no template given"):
        printer(Output("jsonpath"))
