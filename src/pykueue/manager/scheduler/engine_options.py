"""From the configuration file to what the engine's decisions depend on."""

from __future__ import annotations

from typing import Literal

from pykueue.api.quantity import parse
from pykueue.engine.options import (
    GATES,
    AdmissionFairSharing,
    DeviceMapping,
    DeviceSource,
    Options,
    Transformation,
)
from pykueue.manager.configuration import Configuration
from pykueue.manager.configuration.types import DeviceClassMapping


def engine_options(configuration: Configuration) -> Options:
    """The engine's options as the file says them."""
    gates = configuration.gates
    waiting = configuration.wait_for_pods_ready
    sharing = configuration.fair_sharing
    admission_sharing = configuration.admission_fair_sharing
    defaults = Options()
    return Options(
        gates={name: gates[name] for name in GATES if name in gates},
        fair_sharing=sharing is not None,
        preemption_strategies=defaults.preemption_strategies
        if sharing is None
        else sharing.preemption_strategies,
        admission_fair_sharing=None
        if admission_sharing is None
        else AdmissionFairSharing(
            usage_half_life=admission_sharing.usage_half_life_time,
            sampling_interval=admission_sharing.usage_sampling_interval,
            resource_weights=admission_sharing.resource_weights,
        ),
        block_admission=waiting is not None and waiting.block_admission,
        requeuing_timestamp="Eviction" if waiting is None else waiting.requeuing_strategy.timestamp,
        exclude_resource_prefixes=configuration.resources.exclude_resource_prefixes,
        transformations=tuple(
            Transformation(
                input=each.input,
                outputs={name: parse(value) for name, value in each.outputs.items()},
                strategy=each.strategy,
                multiply_by=each.multiply_by,
            )
            for each in configuration.resources.transformations
        ),
        quota_check_strategy=configuration.resources.quota_check_strategy,
        device_mappings=tuple(_mapping(each) for each in configuration.resources.device_class_mappings),
    )


def _mapping(mapping: DeviceClassMapping) -> DeviceMapping:
    sources: list[DeviceSource] = []
    for source in mapping.sources:
        kind: Literal["counter", "capacity"]
        for kind, measure in (("counter", source.counter), ("capacity", source.capacity)):
            if measure is not None:
                selector = measure.device_selector
                text = selector.cel.expression if selector is not None else ""
                sources.append(DeviceSource(kind, measure.name, measure.driver, text))
    return DeviceMapping(mapping.name, mapping.device_class_names, tuple(sources))
