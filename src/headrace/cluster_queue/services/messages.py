"""The messages of the three services, built from one table at import: no generated code, no protoc.

They are in a descriptor pool of their own: a program's generated stubs of the same .proto files are in protobuf's
default pool, which accepts each file once. Sources of names and numbers: fluxion.proto of fluxion, fluxcli.proto and
service.proto of Fluence.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
}

# By package and message, the fields: number, name and type. Other types than those above are messages of the package or
# enumerations of the message.
_MESSAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "fluxion": {
        "InitRequest": ("1 policy string", "2 jgf string"),
        "InitResponse": ("1 status INIT",),
        "MatchRequest": ("1 jobspec string", "2 request string", "3 reservation bool"),
        "MatchResponse": (
            *("1 allocation string", "2 jobid int64", "3 reserved bool", "4 at int64", "5 overhead float"),
            "6 status MATCH",
        ),
        "CancelRequest": ("2 jobID int64",),
        "CancelResponse": ("1 jobID int64", "2 error int32", "3 status CANCEL"),
    },
    "fluxcli": {
        "PodSpec": (
            *("1 id string", "2 container string", "3 cpu int32", "4 memory int64", "5 gpu int64", "6 storage int64"),
            "7 labels string...",
        ),
        "MatchRequest": ("1 ps PodSpec", "2 request string", "3 count int32"),
        "NodeAlloc": ("1 nodeID string", "2 tasks int32"),
        "MatchResponse": ("1 podID string", "2 nodelist NodeAlloc...", "3 jobID int64"),
        "CancelRequest": ("2 jobID int64",),
        "CancelResponse": ("1 jobID int64", "2 error int32"),
    },
    "service": {
        "GroupRequest": ("1 group string",),
        "GroupResponse": ("1 name string", "2 size int64"),
        "ResourceRequest": (),
        "ResourceResponse": ("1 graph string",),
    },
}
# The values of the enumerations `ResultType`, in order from 0.
_RESULTS = {
    "INIT": ("INIT_SUCCESS", "INIT_ERROR", "INIT_DENIED"),
    "MATCH": ("MATCH_SUCCESS", "MATCH_ERROR", "MATCH_DENIED"),
    "CANCEL": ("CANCEL_SUCCESS", "CANCEL_REQUEST_ERROR", "CANCEL_ERROR", "CANCEL_DENIED"),
}
# By full name of a service, the method and the names of its request and response.
SERVICES: dict[str, dict[str, tuple[str, str]]] = {
    "fluxion.FluxionService": {
        "Match": ("MatchRequest", "MatchResponse"),
        "Cancel": ("CancelRequest", "CancelResponse"),
        "Init": ("InitRequest", "InitResponse"),
    },
    "fluxcli.FluxcliService": {
        "Match": ("MatchRequest", "MatchResponse"),
        "Cancel": ("CancelRequest", "CancelResponse"),
    },
    "service.ExternalPluginService": {
        "GetResources": ("ResourceRequest", "ResourceResponse"),
        "ListGroups": ("GroupRequest", "GroupResponse"),
        "GetGroup": ("GroupRequest", "GroupResponse"),
    },
}


def _file(package: str) -> Any:
    """The descriptor of a package's file (FileDescriptorProto), in the syntax proto3."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in _MESSAGES[package].items():
        message = file.message_type.add(name=name)
        for text in fields:
            number, field_name, kind = text.split()
            field = message.field.add(name=field_name, number=int(number), label=_Field.LABEL_OPTIONAL)
            if kind.endswith("..."):
                field.label, kind = _Field.LABEL_REPEATED, kind[:-3]
            if kind in _TYPES:
                field.type = _TYPES[kind]
            elif kind in _RESULTS:
                field.type, field.type_name = _Field.TYPE_ENUM, f".{package}.{name}.ResultType"
                results = message.enum_type.add(name="ResultType")
                for value, result in enumerate(_RESULTS[kind]):
                    results.value.add(name=result, number=value)
            else:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
    for full, methods in SERVICES.items():
        if full.startswith(f"{package}."):
            service = file.service.add(name=full.partition(".")[2])
            for method, (asked, answered) in methods.items():
                service.method.add(name=method, input_type=f".{package}.{asked}", output_type=f".{package}.{answered}")
    return file


POOL = descriptor_pool.DescriptorPool()
for _package in _MESSAGES:
    POOL.Add(_file(_package))


def message(package: str, name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{package}.{name}"))
