"""Other processes: bit for bit the numbers of threads, whatever goes wrong with a worker."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from distributed import Client
from helpers.inputs import arguments_of, refused
from helpers.repository import ROOT
from helpers.tiny import sentence_stimuli
from helpers.waiting import until
from joblib import parallel_config
