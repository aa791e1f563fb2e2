"""An example of a client in Python. It runs if the generated client matches the API."""

import importlib
import inspect
import pkgutil

import ironplane

# All generated modules can be imported.
for module in pkgutil.walk_packages(ironplane.__path__, "ironplane."):
    importlib.import_module(module.name)

configuration = ironplane.Configuration(host="http://127.0.0.1:8080")
configuration.access_token = "ip_…"
entities = ironplane.IPEntitiesApi(ironplane.ApiClient(configuration))

made = ironplane.CreateIPEntityBody(
    group=ironplane.RefBody(id=1), v4=ironplane.CreateIPEntityBodyV4(address="192.0.2.10", gateway="192.0.2.1")
)
edited = ironplane.UpdateIPEntityBody(nickname="rack 12", vlan=120)

# The names and the order of arguments, without a server.
inspect.signature(entities.create_ip_entity).bind(made, idempotency_key="once")
inspect.signature(entities.update_ip_entity).bind(1, edited, if_match='"3"')
inspect.signature(entities.list_ip_entities).bind(group_id=7, sort="-name", per_page=100)
