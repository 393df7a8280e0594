"""supervisor/api/openapi.yaml for tests: loaded with a strict reader, its operations, what is wrong
with it, and answers of a running server judged by it. Needs python3-yaml, and python3-jsonschema for
the bodies of answers; where one is missing, SkipTest says so.
"""

import json
import pathlib
import re
import unittest

try:
    import yaml
except ImportError:
    yaml = None
try:
    import jsonschema
except ImportError:
    jsonschema = None

PATH = pathlib.Path(__file__).resolve().parents[2] / "supervisor" / "api" / "openapi.yaml"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
NO_BODY = ("101", "204", "304")  # HTTP gives these none


def need(module, package):
    if not module:
        raise unittest.SkipTest(f"no module of the package {package} here")


def load():
    """A name that is given twice is a fault; to yaml the last one counts."""
    need(yaml, "python3-yaml")

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            names = [self.construct_object(key) for key, _value in node.value]
            twice = {name for name in names if names.count(name) > 1}
            assert not twice, f"{twice} at {node.start_mark}"
            return super().construct_mapping(node, deep)
    with open(PATH, encoding="utf-8") as file:
        return yaml.load(file, Loader)  # noqa: S506: a SafeLoader


def references(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolve(document, node):
    """What a reference leads to; KeyError if to nothing."""
    while isinstance(node, dict) and "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


class Operation:
    """`name` is its operationId, or "METHOD path" where several methods share a description."""

    def __init__(self, document, method, path, item):
        self.document = document
        self.method = method.upper()
        self.path = path
        self.fields = item[method]
        self.name = self.fields.get("operationId", f"{self.method} {path}")
        self.parameters = [resolve(document, parameter) for parameter in
                           item.get("parameters", []) + self.fields.get("parameters", [])]
        self.responses = {status: resolve(document, response)
                          for status, response in self.fields["responses"].items()}

    def __repr__(self):
        return f"{self.method} {self.path}"


def operations(document):
    return [Operation(document, method, path, item)
            for path, item in document["paths"].items() for method in METHODS if method in item]


# ---- what is wrong with it ----


def faults_of_parameters(operation):
    keys = [(parameter["in"], parameter["name"]) for parameter in operation.parameters]
    if len(keys) != len(set(keys)):
        yield "a parameter is declared twice"
    declared = {name for place, name in keys if place == "path"}
    named = set(re.findall(r"\{(\w+)\}", operation.path))
    if declared != named:
        yield f"its path names {sorted(named)}, declared are {sorted(declared)}"
    for parameter in operation.parameters:
        if not parameter.get("schema"):
            yield f"parameter {parameter['name']} has no schema"
        if parameter["in"] == "path" and parameter.get("required") is not True:
            yield f"parameter {parameter['name']} is of the path and must be required"


def faults_of_responses(operation):
    for status, response in operation.responses.items():
        content = response.get("content", {})
        if not re.fullmatch("[1-5][0-9][0-9]", status):
            yield f"{status} is no status"
        if not response.get("description"):
            yield f"{status} has no description"
        if status in NO_BODY and content:
            yield f"{status} has no body in HTTP"
        if status >= "400" and not content:
            yield f"{status}: an error has a body (an empty one counts as success to an SDK)"
        for media, value in content.items():
            if not value.get("schema"):
                yield f"{status} {media} has no schema"


def faults_of_body(operation):
    body = resolve(operation.document, operation.fields.get("requestBody"))
    if body is None:
        return
    if operation.method in ("GET", "HEAD", "DELETE"):
        yield f"a body of {operation.method} has no meaning"
    if not body.get("content"):
        yield "its body has no content"
    for media, value in body.get("content", {}).items():
        if not value.get("schema"):
            yield f"its body {media} has no schema"


def faults_of_schema(schema, where):
    """Members that are required and not there, defaults that are no value of their enum."""
    if not isinstance(schema, dict):
        return
    missing = set(schema.get("required", [])) - set(schema.get("properties", {}))
    if "properties" in schema and missing and "allOf" not in schema:
        yield f"{where}: requires {sorted(missing)}, which it does not describe"
    if "default" in schema and "enum" in schema and schema["default"] not in schema["enum"]:
        yield f"{where}: its default is not in its enum"
    if schema.get("type") == "array" and "items" not in schema:
        yield f"{where}: an array of what?"
    for key in ("items", "additionalProperties"):
        yield from faults_of_schema(schema.get(key), f"{where}.{key}")
    for key in ("allOf", "oneOf", "anyOf"):
        for i, part in enumerate(schema.get(key, [])):
            yield from faults_of_schema(part, f"{where}.{key}[{i}]")
    for name, part in schema.get("properties", {}).items():
        yield from faults_of_schema(part, f"{where}.{name}")


def faults(document):
    """Sentences."""
    for reference in sorted(set(references(document))):
        try:
            resolve(document, {"$ref": reference})
        except (KeyError, TypeError):
            yield f"{reference} leads nowhere"
            return
    tags = {tag["name"] for tag in document["tags"]}
    used_tags, names = set(), set()
    for operation in operations(document):
        used_tags.update(operation.fields.get("tags", []))
        if operation.name in names:
            yield f"{operation}: its operationId is another's"
        names.add(operation.name)
        for field in ("summary", "tags", "responses"):
            if not operation.fields.get(field):
                yield f"{operation}: no {field}"
        for scheme in operation.fields.get("security", document["security"]):
            for name in scheme:
                if name not in document["components"]["securitySchemes"]:
                    yield f"{operation}: no security scheme {name}"
        for check in (faults_of_parameters, faults_of_responses, faults_of_body):
            for fault in check(operation):
                yield f"{operation}: {fault}"
    if used_tags != tags:
        yield f"tags that only one side has: {sorted(used_tags ^ tags)}"
    for name, schema in document["components"]["schemas"].items():
        yield from faults_of_schema(schema, name)


# ---- answers ----


def merged(parts):
    """allOf of objects as one object, so that a member which none of them has can be seen."""
    whole = {"type": "object", "properties": {}, "required": []}
    for part in parts:
        whole["properties"].update(part.get("properties", {}))
        whole["required"] += part.get("required", [])
    if not whole["required"]:
        del whole["required"]
    return whole


def json_schema(document, schema):
    """As JSON Schema (draft 4) knows it: references replaced, `nullable` a type. A member that is not
    described is a fault unless the description says additionalProperties."""
    schema = dict(resolve(document, schema))
    if "allOf" in schema:
        parts = [json_schema(document, part) for part in schema.pop("allOf")]
        if all("properties" in part for part in parts):
            schema = {**merged(parts), **schema}
        else:
            schema["allOf"] = parts
    for key in ("oneOf", "anyOf"):
        if key in schema:
            schema[key] = [json_schema(document, part) for part in schema[key]]
    if "properties" in schema:
        schema["properties"] = {name: json_schema(document, part)
                                for name, part in schema["properties"].items()}
        schema.setdefault("additionalProperties", False)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = json_schema(document, schema[key])
    if schema.pop("nullable", False):
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        if "type" in schema:
            schema["type"] = [schema["type"], "null"]
    return schema


def faults_of_value(document, schema, value):
    need(jsonschema, "python3-jsonschema")
    schema = json_schema(document, schema)
    for error in jsonschema.Draft4Validator(schema).iter_errors(value):
        place = "/".join(map(str, error.path))
        yield f"at '{place}': {error.message}"


def parsed(media, body):
    """The values that a body consists of."""
    if media == "application/json":
        return [json.loads(body)]
    if media == "text/event-stream":
        return [json.loads(line) for line in body.decode().splitlines() if line]
    return [body.decode("utf-8", "backslashreplace")]


def described_media(content, media):
    for name in (media, media.partition("/")[0] + "/*", "*/*"):
        if name in content:
            return name
    return None


def faults_of_answer(operation, status, headers, body):
    """Of an answer that came from a server. `headers` is by lower-case name."""
    response = operation.responses.get(str(status))
    if not response:
        yield f"status {status} is not described ({body[:200]!r})"
        return
    for name, header in response.get("headers", {}).items():
        if name.lower() not in headers:
            yield f"header {name} is described and not there"
        elif header["schema"].get("enum") and \
                headers[name.lower()] not in map(str, header["schema"]["enum"]):
            yield f"header {name} is {headers[name.lower()]}"
    content = response.get("content", {})
    if operation.method == "HEAD" or str(status) in NO_BODY:
        if body:
            yield "there is a body where HTTP has none"
        return
    if not content:
        if body:
            yield f"a body is not described: {body[:200]!r}"
        return
    if not body and response.get("x-may-be-empty"):
        return
    media = headers.get("content-type", "none").partition(";")[0].strip()
    name = described_media(content, media)
    if not name:
        yield f"media type {media} is not described ({body[:200]!r})"
        return
    if name == "*/*" or content[name]["schema"].get("format") == "binary":
        return
    try:
        values = parsed(media, body)
    except ValueError as error:
        yield f"{error}: {body[:200]!r}"
        return
    for value in values:
        for fault in faults_of_value(operation.document, content[name]["schema"], value):
            yield f"{fault}, in {json.dumps(value)[:300]}"
