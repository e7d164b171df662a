"""How simulated consumer groups fall behind and recover."""

from support.burrow.fake.simulated_kafka import Behaviour, Phase, Spikes

BEHAVIOURS = {
    "slowly falling behind": Behaviour((Phase(50, pace=0.6), Phase(60, pace=1.8)), starts=(8, 20)),
    "healthy": Behaviour(),
    "spiky": Behaviour((Phase(60, pace=1.6),), spikes=Spikes(every=60, lasts=12, height=4)),
    "stalled": Behaviour((Phase(60), Phase(40, pace=0)), afflicts=0.3),
    "skewed": Behaviour((Phase(60, pace=0.8), Phase(45, pace=1.8)), afflicts=0, starts=(10, 30)),
    "stopped": Behaviour((Phase(70), Phase(50, commits=False)), afflicts=0.5),
    "rewinding": Behaviour((Phase(75), Phase(30, pace=1.6, goes_back=90)), afflicts=0.4, starts=(30, 70)),
    "deleted": Behaviour((Phase(150), Phase(420, exists=False)), starts=(60, 100)),
}
"""Behaviours by name. A group with a behaviour falls behind and recovers in rounds of one to ten minutes."""
