"""Clients of the gRPC services as their users have them: stubs that the real protoc makes of .proto files.

The files are written here by the services' names and field numbers, which are their interface.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import grpc

PROTOS = {
    "fluxion": """
service FluxionService {
  rpc Match(MatchRequest) returns (MatchResponse);
  rpc Cancel(CancelRequest) returns (CancelResponse);
  rpc Init(InitRequest) returns (InitResponse);
}
message InitRequest { string policy = 1; string jgf = 2; }
message InitResponse {
  enum ResultType { INIT_SUCCESS = 0; INIT_ERROR = 1; INIT_DENIED = 2; }
  ResultType status = 1;
}
message MatchRequest { string jobspec = 1; string request = 2; bool reservation = 3; }
message MatchResponse {
  string allocation = 1;
  int64 jobid = 2;
  bool reserved = 3;
  int64 at = 4;
  float overhead = 5;
  enum ResultType { MATCH_SUCCESS = 0; MATCH_ERROR = 1; MATCH_DENIED = 2; }
  ResultType status = 6;
}
message CancelRequest { int64 jobID = 2; }
message CancelResponse {
  int64 jobID = 1;
  int32 error = 2;
  enum ResultType { CANCEL_SUCCESS = 0; CANCEL_REQUEST_ERROR = 1; CANCEL_ERROR = 2; CANCEL_DENIED = 3; }
  ResultType status = 3;
}
""",
    "fluxcli": """
service FluxcliService {
  rpc Match(MatchRequest) returns (MatchResponse);
  rpc Cancel(CancelRequest) returns (CancelResponse);
}
message PodSpec {
  string id = 1;
  string container = 2;
  int32 cpu = 3;
  int64 memory = 4;
  int64 gpu = 5;
  int64 storage = 6;
  repeated string labels = 7;
}
message MatchRequest { PodSpec ps = 1; string request = 2; int32 count = 3; }
message NodeAlloc { string nodeID = 1; int32 tasks = 2; }
message MatchResponse { string podID = 1; repeated NodeAlloc nodelist = 2; int64 jobID = 3; }
message CancelRequest { int64 jobID = 2; }
message CancelResponse { int64 jobID = 1; int32 error = 2; }
""",
    "service": """
service ExternalPluginService {
  rpc GetResources(ResourceRequest) returns (ResourceResponse);
  rpc ListGroups(GroupRequest) returns (GroupResponse);
  rpc GetGroup(GroupRequest) returns (GroupResponse);
}
message GroupRequest { string group = 1; }
message GroupResponse { string name = 1; int64 size = 2; }
message ResourceRequest {}
message ResourceResponse { string graph = 1; }
""",
}
_STUBS = {"fluxion": "FluxionServiceStub", "fluxcli": "FluxcliServiceStub", "service": "ExternalPluginServiceStub"}


def compiled(folder: Path) -> SimpleNamespace:
    """The messages (`fluxion`, `fluxcli`, `service`) and the stubs (`fluxion_stub` ...) of protoc, made in a folder."""
    from grpc_tools import protoc

    for package, text in PROTOS.items():
        (folder / f"{package}.proto").write_text(f'syntax = "proto3";\npackage {package};\n{text}')
    files = [f"{package}.proto" for package in PROTOS]
    arguments = ["protoc", f"-I{folder}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]
    assert protoc.main(arguments) == 0
    sys.path.insert(0, str(folder))
    try:
        found = SimpleNamespace()
        for package, stub in _STUBS.items():
            setattr(found, package, importlib.import_module(f"{package}_pb2"))
            setattr(found, f"{package}_stub", getattr(importlib.import_module(f"{package}_pb2_grpc"), stub))
        return found
    finally:
        sys.path.remove(str(folder))


class Clients:
    """A client of each service on one channel."""

    def __init__(self, made: SimpleNamespace, channel: grpc.Channel) -> None:
        self.messages = made
        self.channel = channel
        self.fluxion = made.fluxion_stub(channel)
        self.fluxcli = made.fluxcli_stub(channel)
        self.service = made.service_stub(channel)

    def init(self, jgf: str, policy: str = "") -> int:
        return self.fluxion.Init(self.messages.fluxion.InitRequest(jgf=jgf, policy=policy)).status

    def match(self, jobspec: str, reservation: bool = False):
        return self.fluxion.Match(self.messages.fluxion.MatchRequest(jobspec=jobspec, reservation=reservation))

    def cancel(self, jobid: int):
        return self.fluxion.Cancel(self.messages.fluxion.CancelRequest(jobID=jobid))

    def match_pods(self, count: int = 1, **spec: object):
        asked = self.messages.fluxcli.MatchRequest(ps=self.messages.fluxcli.PodSpec(**spec), count=count)
        return self.fluxcli.Match(asked)

    def cancel_pods(self, jobid: int):
        return self.fluxcli.Cancel(self.messages.fluxcli.CancelRequest(jobID=jobid))

    def groups(self) -> tuple[str, int]:
        found = self.service.ListGroups(self.messages.service.GroupRequest())
        return found.name, found.size

    def group(self, name: str) -> tuple[str, int]:
        found = self.service.GetGroup(self.messages.service.GroupRequest(group=name))
        return found.name, found.size

    def resources(self) -> str:
        return self.service.GetResources(self.messages.service.ResourceRequest()).graph
